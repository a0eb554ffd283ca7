#include "comm/share.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "comm/agree.hpp"
#include "comm/launch.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"

namespace trireme::testing {
namespace {

TEST(Share, TheLargestItemsGoFirstToTheRankWithLeast) {
  const std::vector<std::uint64_t> bytes{10, 100, 60, 50, 0, 0};

  EXPECT_EQ(comm::owners_by_bytes(bytes, 1), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(comm::owners_by_bytes(bytes, 2), (std::vector<int>{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(comm::owners_by_bytes(bytes, 4), (std::vector<int>{3, 0, 1, 2, 3, 3}));
  EXPECT_TRUE(comm::owners_by_bytes({}, 3).empty());
}

TEST(Share, EveryRankHasTheTextOfEveryItemAndEachItemIsDoneOnce) {
  const std::vector<std::uint64_t> bytes{5, 1, 9, 0, 3};
  for (const int size : {1, 2, 3, 7}) {
    std::atomic<int> done = 0;
    comm::run_ranks(size, [&](comm::Communicator& world) {
      const auto texts = comm::distribute_work(world, bytes, [&](std::size_t piece) {
        ++done;
        return piece == 1 ? std::string() : formatted("piece {}\n0 1\n", piece);
      });

      ASSERT_EQ(texts.size(), bytes.size());
      EXPECT_EQ(texts[1], "");
      EXPECT_EQ(texts[4], "piece 4\n0 1\n");
      EXPECT_TRUE(
          comm::distribute_work(world, {}, [](std::size_t) { return std::string(); }).empty());
    });
    EXPECT_EQ(done, 5) << size;
  }
}

/// Any rank may fail first; all throw the error that one rank alone would have thrown.
TEST(Share, TheErrorOfTheLowestItemIsThrownOnAllRanks) {
  const std::vector<std::uint64_t> bytes(6);
  for (const int size : {1, 2, 3}) {
    std::atomic<int> thrown = 0;
    comm::run_ranks(size, [&](comm::Communicator& world) {
      try {
        comm::distribute_work(world, bytes, [&](std::size_t piece) -> std::string {
          if (piece >= 1) fail(ErrorKind::data, "piece {} is damaged", piece);
          return "";
        });
      } catch (const Error& error) {
        ++thrown;
        EXPECT_STREQ(error.what(), "piece 1 is damaged");
        EXPECT_EQ(error.kind(), ErrorKind::data);
      }
    });
    EXPECT_EQ(thrown, size);
  }
}

TEST(Share, AnErrorOfAMachineNamesTheRank) {
  const std::vector<std::uint64_t> bytes(3);
  std::atomic<int> thrown = 0;
  comm::run_ranks(3, [&](comm::Communicator& world) {
    try {
      comm::distribute_work(world, bytes, [&](std::size_t piece) -> std::string {
        if (piece == 2) throw std::bad_alloc();
        return "";
      });
    } catch (const Error& error) {
      ++thrown;
      EXPECT_TRUE(std::string(error.what()).starts_with("rank 2: ")) << error.what();
      EXPECT_EQ(error.kind(), ErrorKind::resource);
    }
  });
  EXPECT_EQ(thrown, 3);
}

TEST(Share, TheFirstRankWorksAndAllHaveItsTextOrItsError) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    const std::string own = formatted("rank {}", world.rank());
    EXPECT_EQ(comm::text_of_first_rank(world, [&] { return own; }), "rank 0");
    const auto error = comm::capture([&] {
      comm::on_first_rank(world, [&] { fail(ErrorKind::usage, "{} has it already", own); });
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_STREQ(error->what(), "rank 0 has it already");
    EXPECT_EQ(error->kind(), ErrorKind::usage);
  });
}

/// The peers of a rank that fails alone may wait for it, so they are notified. If all ranks know
/// the error, none is notified.
TEST(RunRank, OnlyAnErrorOfThisRankAloneAbandonsTheOthers) {
  int abandoned = -1;
  const auto run = [&](const std::function<int()>& body) {
    abandoned = -1;
    return comm::run_rank("test", body, [&](int code) { abandoned = code; });
  };

  EXPECT_EQ(run([] { return 75; }), 75);
  EXPECT_EQ(abandoned, -1);
  EXPECT_EQ(run([]() -> int { throw comm::PeerFailed(4); }), 4);
  EXPECT_EQ(abandoned, -1);
  EXPECT_EQ(run([]() -> int { throw comm::AgreedError(Error(ErrorKind::data, "bad")); }), 3);
  EXPECT_EQ(abandoned, -1);
  EXPECT_EQ(run([]() -> int { fail(ErrorKind::data, "bad"); }), 3);
  EXPECT_EQ(abandoned, 3);
}

}  // namespace
}  // namespace trireme::testing
