/// Tests how the watchdog tells a hang from work, and the stacks of threads.

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <future>
#include <thread>

#include "comm/liveness/heartbeat_stall.hpp"
#include "comm/liveness/watchdog_stacks.hpp"
#include "comm/liveness/watchdog_symbols.hpp"
#include "core/files/file.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::comm {

/// This function is outside the anonymous namespace and never inlined, because the test searches
/// for its name in a stack.
[[gnu::noinline, maybe_unused]] void stand_still_for_the_watchdog(
    std::promise<void>& here, const std::shared_future<void>& go) {
  here.set_value();
  go.wait();
  asm volatile("");  // no tail call: the frame stays
}

namespace {

ActivitySnapshot at_step(std::int64_t step, std::uint64_t operations, const char* phase = "step",
                         bool waiting = false) {
  ActivitySnapshot now;
  now.step = step;
  now.operations = operations;
  now.phase = phase;
  now.waiting = waiting;
  return now;
}

/// Returns a watch after `steps` steps of `step_s` seconds each; the time is steps * step_s.
StallWatch after_steps(HangRule rule, int steps, double step_s) {
  StallWatch watch(rule);
  for (int step = 1; step <= steps; ++step) {
    const auto count = static_cast<std::uint64_t>(step);
    watch.look(step * step_s, {at_step(step, count), at_step(step, count)});
  }
  return watch;
}

TEST(StallWatch, BearsTenMedianStepsButAMinuteAtLeast) {
  StallWatch quick = after_steps({600, 60, 10}, 5, 1.0);
  EXPECT_DOUBLE_EQ(quick.median_step_s(), 1.0);
  const auto still = [](double now_s, StallWatch& watch) {
    return watch.look(now_s, {at_step(5, 5), at_step(5, 5, "step", true)});
  };
  EXPECT_FALSE(still(5 + 29, quick).warn);
  EXPECT_TRUE(still(5 + 31, quick).warn);
  EXPECT_FALSE(still(5 + 32, quick).warn) << "said once";
  EXPECT_FALSE(still(5 + 59, quick).hung);
  EXPECT_TRUE(still(5 + 61, quick).hung);
  EXPECT_EQ(still(5 + 61, quick).behind, 0U) << "rank 1 waits for it";

  StallWatch slow = after_steps({600, 60, 10}, 5, 20.0);
  EXPECT_FALSE(still(100 + 199, slow).hung);
  EXPECT_TRUE(still(100 + 201, slow).hung);
  StallWatch slower = after_steps({600, 60, 10}, 5, 100.0);
  EXPECT_TRUE(still(500 + 601, slower).hung) << "never longer than most_s";
}

TEST(StallWatch, AnythingThatMovesStartsTheClockAgain) {
  StallWatch watch = after_steps({600, 60, 10}, 5, 1.0);
  EXPECT_FALSE(watch.look(50, {at_step(5, 5), at_step(5, 6)}).hung);
  EXPECT_FALSE(watch.look(109, {at_step(5, 5), at_step(5, 6)}).hung);
  EXPECT_TRUE(watch.look(111, {at_step(5, 5), at_step(5, 6)}).hung);
}

TEST(StallWatch, DataMayTakeLongerAndOtherPhasesAsLongAsTheyLike) {
  StallWatch watch = after_steps({600, 60, 10}, 5, 1.0);
  EXPECT_FALSE(watch.look(500, {at_step(5, 5, "data"), at_step(5, 5)}).hung);
  EXPECT_TRUE(watch.look(606, {at_step(5, 5, "data"), at_step(5, 5)}).hung);
  for (const char* phase : {"setup", "save", "validate"}) {
    StallWatch other = after_steps({600, 60, 10}, 5, 1.0);
    const auto stall = other.look(1e6, {at_step(5, 5, phase), at_step(5, 5)});
    EXPECT_FALSE(stall.hung) << phase;
    EXPECT_TRUE(std::isinf(stall.limit_s)) << phase;
    EXPECT_FALSE(other.look(1e6 + 30, {at_step(5, 5), at_step(5, 5)}).hung)
        << "time in " << phase << " does not count afterwards";
  }
  StallWatch never = after_steps({}, 5, 1.0);
  EXPECT_FALSE(never.look(1e9, {at_step(5, 5), at_step(5, 5)}).hung);
}

TEST(StallWatch, TheRankBehindHasFewestStepsThenOperationsThenDoesNotWait) {
  EXPECT_EQ(rank_behind({at_step(5, 9), at_step(4, 20)}), 1U);
  EXPECT_EQ(rank_behind({at_step(5, 9), at_step(5, 8), at_step(5, 9)}), 1U);
  EXPECT_EQ(rank_behind({at_step(5, 9, "step", true), at_step(5, 9), at_step(6, 9)}), 1U);
}

class Stacks : public Scratch {};

#ifndef __SANITIZE_THREAD__  // the wait blocks signals until the thread leaves it
TEST_F(Stacks, NameTheFunctionThatAThreadRuns) {
  std::promise<void> here;
  std::promise<void> go;
  std::thread thread([&here, future = go.get_future().share()] {
    ::pthread_setname_np(::pthread_self(), "stander");
    stand_still_for_the_watchdog(here, future);
  });
  here.get_future().wait();

  const std::string text = stacks_of_all_threads();
  write_stacks(at("deep") / "stacks.txt", "first");
  write_stacks(at("deep") / "stacks.txt", "second");
  go.set_value();
  thread.join();

  EXPECT_NE(text.find("stand_still_for_the_watchdog"), std::string::npos) << text;
  EXPECT_NE(text.find(" stander\n"), std::string::npos) << text;
  EXPECT_NE(text.find("(main)"), std::string::npos) << text;
  EXPECT_NE(text.find("NameTheFunctionThatAThreadRuns"), std::string::npos) << text;
  const std::string file = read_file(at("deep") / "stacks.txt");
  EXPECT_NE(file.find("== first\n"), std::string::npos);
  EXPECT_NE(file.find("== second\n"), std::string::npos) << "appended";
  write_stacks("/proc/self/nothing/x", "nowhere");  // logs the problem and throws nothing
}
#endif

TEST_F(Stacks, AThreadThatBlocksTheSignalIsNamedWithoutAStack) {
  std::promise<void> here;
  std::promise<void> go;
  std::thread thread([&here, future = go.get_future().share()] {
    ::pthread_setname_np(::pthread_self(), "deaf");
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    here.set_value();
    future.wait();
  });
  here.get_future().wait();

  const std::string text = stacks_of_all_threads();
  go.set_value();
  thread.join();

  EXPECT_NE(text.find(" deaf: no answer"), std::string::npos) << text;
}

TEST_F(Stacks, Sigusr1IsAnsweredAndTheProgramContinues) {
  std::promise<void> asked;
  {
    const StackRequests requests([&] { asked.set_value(); });
    ::kill(::getpid(), SIGUSR1);
    asked.get_future().wait();
  }
  SUCCEED();
}

TEST_F(Stacks, ForeignAndBrokenProgramsGiveNoNames) {
  EXPECT_EQ(OwnSymbols("/proc/self/nothing").name_at(1), "");
  write_file_atomic(at("short"), "\177ELF");
  EXPECT_EQ(OwnSymbols(at("short")).name_at(1), "");
  std::string cut = read_file("/proc/self/exe").substr(0, 5000);
  write_file_atomic(at("cut"), cut);
  EXPECT_EQ(OwnSymbols(at("cut")).name_at(0x1000), "");
  EXPECT_EQ(demangle("_ZN7trireme5Timer7restartEv"), "trireme::Timer::restart()");
  EXPECT_EQ(demangle("main"), "main");
}

}  // namespace
}  // namespace trireme::comm
