#include "train/report/progress_line.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "core/log.hpp"

namespace trireme::train {
namespace {

TEST(ProgressLine, ComparesTheEtaWithTheEndOfTheJob) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  constexpr double kMidnight = 1'795'824'000;
  constexpr double kHour_s = 3600;
  const double now = kMidnight + 4 * kHour_s;
  const double end = kMidnight + 7 * kHour_s;

  EXPECT_EQ(eta_text(6180, now, {}, {}), "ETA 1h43m");
  EXPECT_EQ(eta_text(6180, now, {}, end), "ETA 1h43m (done at 05:43, job ends 07:00)");
  EXPECT_EQ(eta_text(12 * kHour_s, now, {}, end),
            "ETA 12h00m (job ends 07:00 before the run is done)");
  EXPECT_EQ(eta_text(12 * kHour_s, now, end - 5 * kHour_s, end),
            "ETA 12h00m (job ends 07:00, needs 2 more jobs)");
  EXPECT_EQ(eta_text(4 * kHour_s, now, end - 5 * kHour_s, end),
            "ETA 4h00m (job ends 07:00, needs 1 more job)");
  EXPECT_EQ(eta_text(30 * kHour_s, now, {}, now + 40 * kHour_s),
            "ETA 30h00m (done at 2026-11-29 10:00, job ends 2026-11-29 20:00)");
}

TEST(ProgressLine, FormatsCounts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1500), "1.5k");
  EXPECT_EQ(format_count(1240000), "1.24M");
  EXPECT_EQ(format_count(3e9), "3.00G");
  EXPECT_EQ(format_count(2.5e13), "25.00T");
  EXPECT_EQ(format_count(5e16), "50000.00T");
}

MetricsLine line_of(std::int64_t step, double step_time_s) {
  MetricsLine line;
  line.add("step", step).add("loss", 1.23456).add("step_time_s", step_time_s);
  for (const char* other : {"lr", "grad_norm", "tokens_per_s", "mfu", "mem_peak_bytes",
                            "data_wait_s", "comm_exposed_s"})
    line.add(other, 0.0);
  return line.add("skipped", step == 2);
}

TEST(ProgressLine, AnUnknownCommunicationTimeIsLeftOut) {
  MetricsLine known = line_of(1, 2);
  MetricsLine unknown = known;
  std::erase_if(unknown.metrics, [](const Metric& one) { return one.name == "comm_exposed_s"; });
  const auto text_of = [](const MetricsLine& line) {
    ::testing::internal::CaptureStderr();
    ProgressLine progress({.first_step = 0, .total_steps = 9, .log_every = 1}, 0);
    progress.write(line);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(text_of(known).find("  data 0.0%  comm 0.0%  "), std::string::npos);
  EXPECT_NE(text_of(unknown).find("  data 0.0%  ETA"), std::string::npos) << text_of(unknown);
}

TEST(ProgressLine, ShowsTheRewardOrTheAccuracyOfATask) {
  for (const char* name : {"reward", "accuracy"}) {
    MetricsLine line = line_of(1, 2);
    line.add(name, 0.375);
    ::testing::internal::CaptureStderr();
    ProgressLine({.first_step = 0, .total_steps = 9, .log_every = 1}, 0).write(line);
    log::flush();
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find(std::string("loss 1.2346  ") + name + " 0.375  lr"), std::string::npos)
        << text;
  }
}

/// Returns the lines of a batch log for steps first+1 .. last.
std::string log_of(std::int64_t first, std::int64_t last, std::int64_t total, std::int64_t every,
                   double period_s = 0) {
  ::testing::internal::CaptureStderr();
  ProgressLine progress({.first_step = first, .total_steps = total, .log_every = every}, period_s);
  for (std::int64_t step = first + 1; step <= last; ++step) progress.write(line_of(step, 2));
  progress.pause();
  log::flush();
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressLine, WritesWholeLinesForFirstLastAndEveryNthStepInABatchLog) {
  const std::string text = log_of(0, 12, 12, 5);

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  for (const char* step : {"step 1/12", "step 5/12", "step 10/12", "step 12/12"})
    EXPECT_NE(text.find(step), std::string::npos) << step;
  EXPECT_NE(text.find("loss 1.2346"), std::string::npos);
  EXPECT_NE(text.find("ETA 22s"), std::string::npos) << text;
}

TEST(ProgressLine, WritesOneLineIn30SecondsAtMost) {
  const std::string text = log_of(0, 12, 12, 5, kProgressLogPeriod_s);

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.find("step 10/12"), std::string::npos) << "only the first and the last step";
}

TEST(ProgressLine, WritesJsonLines) {
  progress_mode() = "json";
  const std::string text = log_of(0, 2, 2, 1);
  progress_mode() = "auto";

  const Json first = Json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["progress"], "train");
  EXPECT_EQ(first["done"], 1);
  EXPECT_EQ(first["total"], 2);
  EXPECT_EQ(first["eta_s"], 2);
}

TEST(ProgressLine, TheTimeLeftCountsSavesButNotTheFirstStep) {
  ::testing::internal::CaptureStderr();
  ProgressLine progress({.first_step = 0, .total_steps = 200, .log_every = 1}, 0);
  for (std::int64_t step = 1; step <= 101; ++step) {
    const bool after_a_save = step % 10 == 1;  // the save takes 10 s
    progress.write(line_of(step, step == 1 ? 1000 : after_a_save ? 11 : 1));
  }
  log::flush();
  const std::string text = ::testing::internal::GetCapturedStderr();

  EXPECT_NE(text.find("step 101/200"), std::string::npos);
  EXPECT_NE(text.find("ETA 3m18s", text.find("step 101/200")), std::string::npos)
      << "99 steps of 2 s: " << text.substr(text.find("step 101/200"));
}

TEST(ProgressLine, SaysThatAStepWasSkippedAndCountsFromTheResumedStep) {
  const std::string text = log_of(1, 3, 100, 50);

  EXPECT_NE(text.find("step 2/100"), std::string::npos) << text;
  EXPECT_NE(text.find("skipped (not finite)"), std::string::npos);
  EXPECT_EQ(text.find("step 3/100"), std::string::npos);
}

TEST(ProgressLine, IsSilentWhenOffAndOfEvents) {
  EXPECT_EQ(log_of(0, 3, 3, 0), "");
  ::testing::internal::CaptureStderr();
  ProgressLine progress({.total_steps = 3});
  progress.write({MetricsLine::Kind::validation, {}});
  log::flush();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace trireme::train
