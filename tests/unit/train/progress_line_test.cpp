#include "train/report/progress_line.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/log.hpp"

namespace trireme {
namespace {

TEST(ProgressLine, FormatsCounts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1500), "1.5k");
  EXPECT_EQ(format_count(1240000), "1.24M");
  EXPECT_EQ(format_count(3e9), "3.00G");
  EXPECT_EQ(format_count(2.5e13), "25.00T");
  EXPECT_EQ(format_count(5e16), "50000.00T");
}

/// What a batch log would hold for steps first+1 .. last.
std::string log_of(std::int64_t first, std::int64_t last, std::int64_t total, std::int64_t every,
                   bool active) {
  ::testing::internal::CaptureStderr();
  ProgressLine progress(first, total, every, active);
  for (std::int64_t step = first + 1; step <= last; ++step) {
    MetricsLine line;
    line.facts.step = step;
    line.facts.skipped = step == 2;
    line.loss = 1.23456;
    line.step_time_s = 2;
    progress.show(line);
  }
  progress.close();
  log::flush();
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressLine, InABatchLogIsWholeLinesOfFirstLastAndEveryNth) {
  const std::string text = log_of(0, 12, 12, 5, true);

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  for (const char* step : {"step 1/12", "step 5/12", "step 10/12", "step 12/12"})
    EXPECT_NE(text.find(step), std::string::npos) << step;
  EXPECT_NE(text.find("loss 1.2346"), std::string::npos);
  EXPECT_NE(text.find("ETA 22s"), std::string::npos) << text;
}

TEST(ProgressLine, TheTimeLeftCountsSavesButNotTheFirstStep) {
  ::testing::internal::CaptureStderr();
  ProgressLine progress(0, 200, 1, true);
  for (std::int64_t step = 1; step <= 101; ++step) {
    MetricsLine line;
    line.facts.step = step;
    line.step_time_s = step == 1 ? 1000 : step % 10 == 1 ? 11 : 1;  // a save of 10 s every 10 steps
    progress.show(line);
  }
  log::flush();
  const std::string text = ::testing::internal::GetCapturedStderr();

  EXPECT_NE(text.find("step 101/200"), std::string::npos);
  EXPECT_NE(text.find("ETA 3m18s", text.find("step 101/200")), std::string::npos)
      << "99 steps of 2 s: " << text.substr(text.find("step 101/200"));
}

TEST(ProgressLine, SaysThatAStepWasSkippedAndCountsFromTheResumedStep) {
  const std::string text = log_of(1, 3, 100, 50, true);

  EXPECT_NE(text.find("step 2/100"), std::string::npos) << text;
  EXPECT_NE(text.find("skipped (overflow)"), std::string::npos);
  EXPECT_EQ(text.find("step 3/100"), std::string::npos);
}

TEST(ProgressLine, IsSilentWhenOffOrOnAnotherRank) {
  EXPECT_EQ(log_of(0, 3, 3, 0, true), "");
  EXPECT_EQ(log_of(0, 3, 3, 1, false), "");
}

}  // namespace
}  // namespace trireme
