#include "core/writer_thread.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "core/background_log.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

TEST(WriterThread, RunsTasksInOrderAndDrains) {
  std::vector<int> done;
  WriterThread writer;
  for (int i = 0; i < 100; ++i) writer.post([&done, i] { done.push_back(i); });
  writer.drain();
  ASSERT_EQ(done.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
}

TEST(WriterThread, AFullQueueDropsInexactTasksAndKeepsExactOnes) {
  std::promise<void> thaw;
  std::shared_future<void> thawed = thaw.get_future().share();
  std::vector<int> done;
  WriterThread writer(4);
  std::promise<void> frozen;
  writer.post([&] {
    frozen.set_value();
    thawed.wait();
  });
  frozen.get_future().wait();
  for (int i = 0; i < 7; ++i) writer.post_inexact([&done, i] { done.push_back(i); });
  EXPECT_EQ(writer.take_num_dropped(), 3U);
  EXPECT_EQ(writer.take_num_dropped(), 0U);
  const auto exact = std::async(std::launch::async, [&] {
    for (int i = 7; i < 10; ++i) writer.post([&done, i] { done.push_back(i); });
  });
  EXPECT_EQ(exact.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
      << "an exact task waits for room";
  EXPECT_FALSE(writer.drain_for(0.01));
  thaw.set_value();
  exact.wait();
  writer.drain();
  EXPECT_EQ(done, (std::vector{0, 1, 2, 3, 7, 8, 9}));
}

TEST(WriterThread, AnErrorIsThrownOnceAndEndsTheExactTasks) {
  int done = 0;
  std::promise<void> both_posted;
  WriterThread writer;
  writer.post([&] {
    both_posted.get_future().wait();
    fail(ErrorKind::resource, "no space left");
  });
  writer.post([&] { ++done; });
  both_posted.set_value();
  EXPECT_EQ(error_of([&] { writer.drain(); }).kind(), ErrorKind::resource);
  writer.post([&] { ++done; });
  writer.post_inexact([&] { done += 10; });
  writer.drain();
  EXPECT_EQ(done, 10) << "a line after the lost one would leave a gap";
}

/// Replaces stderr by a pipe that nobody reads until text() is called.
class FrozenStderr {
 public:
  FrozenStderr() : saved_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_), 0);
    ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
    ::dup2(ends_[1], STDERR_FILENO);
    ::close(ends_[1]);
  }

  /// Reads until `end` has arrived.
  std::string text(const std::string& end) const {
    std::string text;
    char buffer[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t size = ::read(ends_[0], buffer, sizeof buffer);
      if (size <= 0) break;
      text.append(buffer, static_cast<std::size_t>(size));
    }
    return text;
  }

  ~FrozenStderr() {
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
    ::close(ends_[0]);
  }

 private:
  int saved_;
  int ends_[2]{};
};

TEST(BackgroundLog, AFrozenTerminalDoesNotStopTheCaller) {
  const FrozenStderr frozen;
  std::future<std::string> text;
  {
    const log::Background background;
    const Timer timer;
    for (int i = 0; i < 20'000; ++i) log::info(formatted("a line of the log, number {}", i));
    log::warn("the last warning");
    EXPECT_LT(timer.seconds(), 5.0);
    text = std::async(std::launch::async, [&] { return frozen.text("the last warning"); });
  }
  const std::string lines = text.get();
  EXPECT_TRUE(contains(lines, "number 0\n"));
  EXPECT_TRUE(contains(lines, "log lines were dropped"));
  EXPECT_TRUE(contains(lines, "the last warning"));
  EXPECT_FALSE(contains(lines, "number 19999"));
}

}  // namespace
}  // namespace trireme
