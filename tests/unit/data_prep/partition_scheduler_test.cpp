#include "data_prep/pack/partition_scheduler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"

namespace trireme::data_prep {
namespace {

using Groups = std::vector<std::vector<std::size_t>>;

Groups singles(std::size_t count) {
  Groups groups;
  for (std::size_t i = 0; i < count; ++i) groups.push_back({i});
  return groups;
}

TEST(PartitionQueue, GivesTheLargestGroupFirstAndKeepsGroupsTogether) {
  const std::vector<std::uint64_t> bytes{10, 10, 30, 5, 5, 5, 5, 5};
  PartitionQueue queue({{0}, {1}, {2}, {3, 4, 5, 6, 7}}, bytes);

  EXPECT_EQ(queue.next(0), 2U);
  EXPECT_EQ(queue.next(1), 3U);
  EXPECT_EQ(queue.next(0), 0U);
  EXPECT_EQ(queue.next(1), 4U);
  EXPECT_EQ(queue.next(1), 5U);
  EXPECT_EQ(queue.next(2), 1U);
  EXPECT_EQ(queue.next(0), std::nullopt);
  EXPECT_EQ(queue.next(1), 6U);
  queue.stop();
  EXPECT_EQ(queue.next(1), std::nullopt);
}

TEST(PartitionScheduler, FixedSharesAreAllPartitions) {
  const std::vector<std::uint64_t> bytes(11, 1);
  std::vector<std::size_t> all;
  std::mutex mutex;
  comm::run_ranks(3, [&](comm::Communicator& world) {
    PartitionScheduler scheduler(world, singles(11), bytes, true, [](const PartitionProgress&) {});
    while (const auto partition = scheduler.next({}, false)) {
      const std::lock_guard lock(mutex);
      all.push_back(*partition);
    }
  });
  std::sort(all.begin(), all.end());

  std::vector<std::size_t> expected(11);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(all, expected);
}

/// Returns the partitions of each of `ranks`; `work(rank, partition)` returns true to request a
/// stop.
template <class Work>
Groups share(int ranks, std::size_t partitions, std::uint64_t& bytes_told, Work&& work) {
  Groups taken(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    std::uint64_t told = 0;
    PartitionScheduler scheduler(
        world, singles(partitions), std::vector<std::uint64_t>(partitions, 1), false,
        [&](const PartitionProgress& progress) { told += progress.bytes; });
    PartitionProgress progress;
    bool stop = false;
    while (const auto partition = scheduler.next(progress, stop)) {
      taken[static_cast<std::size_t>(world.rank())].push_back(*partition);
      stop = work(world.rank(), *partition, scheduler);
      progress = {.bytes = *partition + 1};
    }
    scheduler.finish();
    world.barrier();
    if (world.rank() == 0) bytes_told = told;
  });
  return taken;
}

TEST(PartitionScheduler, GivesEachPartitionToOneRank) {
  for (const int ranks : {2, 3, 7}) {
    for (const std::size_t partitions : {0U, 1U, 2U, 60U}) {
      std::uint64_t told = 0;
      const Groups taken =
          share(ranks, partitions, told, [](int, std::size_t, PartitionScheduler& scheduler) {
            scheduler.serve();
            return false;
          });

      std::vector<std::size_t> all;
      for (const auto& mine : taken) all.insert(all.end(), mine.begin(), mine.end());
      std::sort(all.begin(), all.end());
      std::vector<std::size_t> expected(partitions);
      std::iota(expected.begin(), expected.end(), 0U);
      EXPECT_EQ(all, expected) << ranks;
      EXPECT_EQ(told, partitions * (partitions + 1) / 2) << ranks << " " << partitions;
    }
  }
}

TEST(PartitionScheduler, GivesASlowRankFewerPartitions) {
  std::uint64_t told = 0;
  const Groups taken = share(3, 60, told, [](int rank, std::size_t, PartitionScheduler& scheduler) {
    for (int i = 0; i < (rank == 1 ? 40 : 4); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      scheduler.serve();
    }
    return false;
  });

  EXPECT_LT(taken[1].size(), taken[0].size());
  EXPECT_LT(taken[1].size(), taken[2].size());
}

TEST(PartitionScheduler, AStopOfOneRankEndsAll) {
  for (const int stopper : {0, 2}) {
    std::uint64_t told = 0;
    const Groups taken =
        share(3, 300, told, [&](int rank, std::size_t, PartitionScheduler& scheduler) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          scheduler.serve();
          return rank == stopper;
        });

    EXPECT_EQ(taken[static_cast<std::size_t>(stopper)].size(), 1U);
    EXPECT_LT(taken[0].size() + taken[1].size() + taken[2].size(), 300U);
  }
}

TEST(PartitionScheduler, AnErrorInTheCountEndsRankZero) {
  EXPECT_THROW(
      comm::run_ranks(2,
                      [](comm::Communicator& world) {
                        PartitionScheduler scheduler(world, singles(20),
                                                     std::vector<std::uint64_t>(20, 1), false,
                                                     [](const PartitionProgress& progress) {
                                                       if (progress.bad_lines > 2)
                                                         fail(ErrorKind::data, "too many");
                                                     });
                        while (scheduler.next({.bad_lines = world.rank() == 0 ? 0U : 3U}, false))
                          scheduler.serve();
                        scheduler.finish();
                      }),
      Error);
}

}  // namespace
}  // namespace trireme::data_prep
