#include "generate/thread_choice.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <functional>

namespace trireme::generate {
namespace {

using Seconds = std::function<double(int threads)>;

/// Runs steps of `rows` rows. Returns the share of the steps that ran with `wanted` threads.
double share_with(int wanted, ThreadChoice& choice, int steps, const Seconds& seconds,
                  std::int64_t rows = 1) {
  int found = 0;
  for (int i = 0; i < steps; ++i) {
    const int threads = choice.threads(rows);
    found += threads == wanted ? 1 : 0;
    choice.took(rows, seconds(threads));
  }
  return static_cast<double>(found) / steps;
}

double shared_work(int threads) {
  return 0.008 / threads;
}

double same_time(int /*threads*/) {
  return 0.003;
}

/// A core of four is busy: the thread on it makes the others wait.
double busy_core(int threads) {
  return threads == 4 ? 0.009 : shared_work(threads);
}

TEST(ThreadChoice, KeepsAllThreadsThatHelp) {
  ThreadChoice choice(4);
  EXPECT_GT(share_with(4, choice, 4000, shared_work), 0.93);
  EXPECT_EQ(choice.threads(1), 4);
}

TEST(ThreadChoice, KeepsAllThreadsIfFewerAreNotFaster) {
  ThreadChoice choice(2);
  EXPECT_GT(share_with(2, choice, 4000, same_time), 0.9);
}

TEST(ThreadChoice, UsesOneThreadIfMoreCostTime) {
  ThreadChoice choice(8);
  const auto tiny = [](int threads) { return 0.001 * threads; };
  share_with(1, choice, 4000, tiny);
  EXPECT_GT(share_with(1, choice, 4000, tiny), 0.9);
}

TEST(ThreadChoice, LeavesABusyCoreAndReturnsToIt) {
  ThreadChoice choice(4);
  share_with(4, choice, 1000, shared_work);
  share_with(3, choice, 100, busy_core);  // a step that is slower than before starts a trial
  EXPECT_GT(share_with(3, choice, 2000, busy_core), 0.9);
  share_with(4, choice, 4000, shared_work);
  EXPECT_GT(share_with(4, choice, 2000, shared_work), 0.9);
}

TEST(ThreadChoice, RecoversFromATransientDisturbance) {
  ThreadChoice choice(2);
  share_with(2, choice, 500, shared_work);
  int step = 0;
  share_with(2, choice, 40,
             [&](int threads) { return ++step % 3 == 0 ? 0.02 : shared_work(threads); });
  share_with(2, choice, 500, shared_work);
  EXPECT_GT(share_with(2, choice, 1000, shared_work), 0.9);
}

TEST(ThreadChoice, KeepsAllThreadsIfAllStepsBecomeSlower) {
  ThreadChoice choice(2);
  share_with(2, choice, 500, shared_work);
  const auto longer = [](int threads) { return 2 * shared_work(threads); };
  EXPECT_GT(share_with(2, choice, 4000, longer), 0.9);
}

TEST(ScopedThreads, RestoresTheNumberOfThreads) {
  const int before = omp_get_max_threads();
  {
    const ScopedThreads some(before + 2);
    EXPECT_EQ(omp_get_max_threads(), before + 2);
  }
  EXPECT_EQ(omp_get_max_threads(), before);
}

TEST(ThreadChoice, ChoosesForEachNumberOfRows) {
  ThreadChoice choice(2);
  const auto tiny = [](int threads) { return 0.003 * threads; };
  for (int i = 0; i < 2000; ++i) {
    choice.took(1, tiny(choice.threads(1)));
    choice.took(8, shared_work(choice.threads(8)));
  }
  EXPECT_GT(share_with(1, choice, 500, tiny, 1), 0.9);
  EXPECT_GT(share_with(2, choice, 500, shared_work, 8), 0.9);
}

TEST(ThreadChoice, ComparesOnlyStepsOfTheSameRows) {
  ThreadChoice choice(4);
  // The number of rows changes before a window ends, so there is no trial.
  for (int i = 0; i < 4000; ++i) {
    const std::int64_t rows = 4 + i / 5 % 4;
    ASSERT_EQ(choice.threads(rows), 4);
    choice.took(rows, 0.01);
  }
}

TEST(ThreadChoice, HasOneThreadIfThereIsNoOther) {
  ThreadChoice choice(1);
  EXPECT_EQ(share_with(1, choice, 100, same_time), 1.0);
}

}  // namespace
}  // namespace trireme::generate
