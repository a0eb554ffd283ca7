#include "core/log.hpp"

#include <algorithm>
#include <cctype>
#include <thread>
#include <vector>

#include "core/escape.hpp"
#include "core/files/file.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

class Log : public Scratch {
 protected:
  void TearDown() override {
    log::init({});
    Scratch::TearDown();
  }

  /// Returns what `body` writes to stderr.
  template <class Body>
  static std::string stderr_of(Body&& body) {
    testing::internal::CaptureStderr();
    body();
    log::flush();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, ALineHasTimeLevelAndMessage) {
  const std::string text = stderr_of([] {
    log::init({});
    log::info("read {} shards");  // braces are text, not a format
    log::debug("hidden");
  });

  std::string shape = text;
  for (char& c : shape) c = std::isdigit(static_cast<unsigned char>(c)) != 0 ? '0' : c;
  EXPECT_EQ(shape, "0000-00-00 00:00:00.000 info  read {} shards\n");
}

TEST_F(Log, ControlCharactersDoNotReachTheTerminal) {
  const std::string text = stderr_of([] {
    log::init({});
    log::warn("role 'b\x1b[2J\r\x9c'\n\tnext \u009b \u00e9");
  });

  EXPECT_TRUE(contains(text, "role 'b\\x1b[2J\\x0d\x9c'\n\tnext \\x9b \u00e9\n")) << text;
  EXPECT_EQ(escape_controls(std::string("\0\x7f\xc2", 3)), "\\x00\\x7f\xc2");
  EXPECT_EQ(escape_json_controls("{\"a\": \"\x7f\u0080\"}"), "{\"a\": \"\\u007f\\u0080\"}");
}

TEST_F(Log, OtherRanksShowOnlyWarningsAndTheirRank) {
  const std::string text = stderr_of([] {
    log::init({.rank = 3, .size = 4});
    log::info("quiet");
    log::warn("loud");
  });

  EXPECT_FALSE(contains(text, "quiet"));
  EXPECT_TRUE(contains(text, "[rank 3] loud")) << text;
}

TEST_F(Log, AFileHoldsEverythingOfTheLevel) {
  stderr_of([&] {
    log::init({.rank = 1, .size = 2, .level = log::Level::debug, .file = at("rank.log").string()});
    log::debug("detail");
    log::flush();
  });

  EXPECT_TRUE(contains(read_file(at("rank.log")), "[rank 1] detail"));
}

TEST_F(Log, AFileThatCannotBeWrittenIsAResourceError) {
  write_file_atomic(at("file"), "");

  EXPECT_EQ(error_of([&] { log::init({.file = (at("file") / "x.log").string()}); }).kind(),
            ErrorKind::resource);
}

TEST_F(Log, InitAndMessagesMayComeFromAnyThread) {
  const std::string text = stderr_of([] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([i] {
        if (i == 0) log::init({});
        for (int k = 0; k < 50; ++k) log::info("x");
      });
    }
  });

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 200);
}

}  // namespace
}  // namespace trireme
