#include "core/process/run_main.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <future>
#include <new>
#include <system_error>

#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

struct Result {
  int code = 0;
  std::string text;  // stderr
};

template <class Body>
Result run(Body&& body) {
  testing::internal::CaptureStderr();
  Result result;
  result.code = run_main("trireme", body);
  result.text = testing::internal::GetCapturedStderr();
  return result;
}

TEST(RunMain, ReturnsTheCodeOfTheBody) {
  EXPECT_EQ(run([] { return 0; }).code, 0);
  EXPECT_EQ(run([] { return kExitStopped; }).code, 75);
  EXPECT_EQ(run([] { return 0; }).text, "");
}

TEST(RunMain, PrintsAnErrorOnceAndMapsItsKind) {
  const Result result = run([]() -> int { fail(ErrorKind::comm, "peer 3 is lost\nhost n7"); });

  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.text, "trireme: error: peer 3 is lost\n  host n7\n");
}

TEST(RunMain, PrintsNoControlCharacterOfAMessage) {
  EXPECT_EQ(run([]() -> int { fail(ErrorKind::data, "name '\x1b]0;x\a'\ttab\nline"); }).text,
            "trireme: error: name '\\x1b]0;x\\x07'\ttab\n  line\n");
}

TEST(RunMain, MapsWhatIsNoErrorOfOurs) {
  EXPECT_EQ(run([]() -> int { throw std::bad_alloc(); }).code, 4);
  EXPECT_EQ(run([]() -> int { throw std::runtime_error("odd"); }).code, 1);
  EXPECT_EQ(run([]() -> int { throw std::runtime_error("odd"); }).text,
            "trireme: internal error: odd; please report this\n");
  EXPECT_EQ(run([]() -> int { throw 7; }).code, 1);
}

TEST(RunMain, MapsWhatTheSystemRefusesByItsNumber) {
  const auto code = [](auto error) { return run([&]() -> int { throw error; }).code; };
  const auto number = [](int value) { return std::error_code(value, std::generic_category()); };

  for (const int machine : {ENOSPC, EMFILE, ENFILE, ENOMEM, EAGAIN, EIO}) {
    EXPECT_EQ(code(std::system_error(number(machine))), 4) << machine;
    EXPECT_EQ(code(std::filesystem::filesystem_error("open", "a", number(machine))), 4) << machine;
  }
  EXPECT_EQ(code(std::filesystem::filesystem_error("open", "a", number(EACCES))), 3);
  // The error names no file, so it is a bug of the program.
  EXPECT_EQ(code(std::system_error(number(EDEADLK))), 1);
  EXPECT_EQ(code(std::system_error(std::make_error_code(std::future_errc::no_state))), 1);
}

/// Returns the exit code of a child with standard output `fd` that prints more than a buffer holds.
[[noreturn]] void print_to(int fd, int code, int lines = 10000) {
  ::dup2(fd, STDOUT_FILENO);
  const int result = run_main("trireme", [&] {
    for (int i = 0; i < lines; ++i) print("a line of output\n");
    return code;
  });
  std::fflush(stderr);
  ::_exit(result);
}

using RunMainDeathTest = testing::Test;

TEST(RunMainDeathTest, ABrokenPipeEndsQuietly) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        int ends[2];
        if (::pipe(ends) != 0) ::_exit(99);
        ::close(ends[0]);
        print_to(ends[1], 0);
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(RunMainDeathTest, AFullDiskUnderStandardOutputIsAResourceError) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::FILE* full = std::fopen("/dev/full", "w");
        if (full == nullptr) ::_exit(99);
        print_to(::fileno(full), 0);
      },
      testing::ExitedWithCode(4),
      // The message is printed once.
      "^trireme: error: cannot write standard output: No space left on device\n$");
}

TEST(RunMainDeathTest, LostOutputIsSaidOfAResultThatIsNotDoneToo) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::FILE* full = std::fopen("/dev/full", "w");
        if (full == nullptr) ::_exit(99);
        print_to(::fileno(full), 1, /*lines=*/1);
      },
      testing::ExitedWithCode(1),
      "^trireme: error: cannot write standard output: No space left on device\n$");
}

}  // namespace
}  // namespace trireme
