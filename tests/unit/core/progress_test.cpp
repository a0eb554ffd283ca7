#include "core/progress.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

/// Returns what `work` writes to standard error while progress has this mode.
template <class Work>
std::string shown(const std::string& mode, Work&& work) {
  const std::string before = progress_mode();
  progress_mode() = mode;
  ::testing::internal::CaptureStderr();
  work();
  log::flush();
  progress_mode() = before;
  return ::testing::internal::GetCapturedStderr();
}

TEST(Progress, ShortWorkWritesNothingToALog) {
  const std::string text = shown("auto", [] {
    Progress progress("verify", 100, Progress::Unit::bytes);
    for (int i = 0; i < 100; ++i) progress.add(1);
  });

  EXPECT_EQ(text, "");
}

TEST(Progress, LinesOfALogHaveTheAmountAndNoCarriageReturn) {
  const std::string text = shown("log", [] {
    ProgressOutput output("log", 0);
    EXPECT_TRUE(output.is_due());
    output.show("verify  50 %", "{}");
    output.end_line(false);
  });

  EXPECT_NE(text.find("verify  50 %"), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, ABarIsRedrawnAndRemoved) {
  const std::string text = shown("bar", [] {
    Progress progress("export", 4e6, Progress::Unit::bytes);
    timespec pause{0, 110'000'000};
    ::nanosleep(&pause, nullptr);
    progress.add(1e6);
  });

  EXPECT_EQ(text.find("\rexport  25 %  1.0 MB of 4.0 MB  "), 0U) << text;
  EXPECT_TRUE(text.ends_with("\r\033[K")) << text;
}

TEST(Progress, JsonLinesAreObjects) {
  const std::string text = shown("json", [] {
    Progress progress("evaluate", 10, Progress::Unit::items);
    timespec pause{1, 10'000'000};
    ::nanosleep(&pause, nullptr);
    progress.add(5);
    progress.add(5);
  });

  const std::size_t end = text.find('\n');
  const Json first = Json::parse(text.substr(0, end));
  EXPECT_EQ(first["progress"], "evaluate");
  EXPECT_EQ(first["done"], 5);
  EXPECT_EQ(first["total"], 10);
  EXPECT_EQ(first["unit"], "items");
  const Json last = Json::parse(text.substr(end + 1));
  EXPECT_EQ(last["done"], 10) << "at its end, even within the second";
}

TEST(Progress, NoneIsSilent) {
  EXPECT_EQ(shown("none",
                  [] {
                    ProgressOutput output;
                    EXPECT_FALSE(output.is_due());
                    output.show("text", "{}");
                  }),
            "");
}

}  // namespace
}  // namespace trireme
