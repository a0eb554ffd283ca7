/// Tests the network model: NCCL's constants, and the table computed from them.

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "train/planner/cluster.hpp"

namespace trireme::planner {
namespace {

constexpr double kMiB = 1024.0 * 1024;

struct Row {
  int ranks;
  std::array<double, 4> ring_ms;
  std::array<double, 4> tree_ms;
};

// Times for 25 MiB, 248 MB (124M parameters in bf16), 3.1 GB (1.55B) and 16 GB (8B), on nodes of
// eight.
constexpr std::array<double, 4> kBytes{25 * kMiB, 248e6, 3.1e9, 16e9};
constexpr std::array<Row, 6> kTable{{{8, {0.18, 1.23, 14.7, 75.7}, {0.22, 1.55, 18.7, 96.2}},
                                     {64, {0.73, 1.94, 17.5, 88.1}, {0.31, 1.68, 19.3, 98.9}},
                                     {256, {2.54, 3.77, 19.6, 90.9}, {0.37, 1.74, 19.3, 99.0}},
                                     {512, {4.96, 6.19, 22.0, 93.5}, {0.39, 1.76, 19.4, 99.0}},
                                     {1024, {9.80, 11.0, 26.9, 98.5}, {0.42, 1.79, 19.4, 99.0}},
                                     {4096, {38.8, 40.1, 55.9, 127.6}, {0.48, 1.85, 19.5, 99.1}}}};

/// 370 GB/s inside a node, 360 GB/s across nodes.
Network network() {
  return Network({.node_bytes_per_s = 370e9, .network_bytes_per_s = 45e9});
}

TEST(Network, AllReduceTimesAreTheTableS) {
  const Network net = network();
  for (const Row& row : kTable) {
    const GroupShape group = group_shape(row.ranks, 1, 8);
    for (std::size_t i = 0; i < kBytes.size(); ++i) {
      // The shortest times are written with two digits: 1.5 % is half of the last digit.
      const auto bound = [](double value) { return std::max(0.015 * value, 0.006); };
      EXPECT_NEAR(1e3 * net.ring_all_reduce_s(kBytes[i], group), row.ring_ms[i],
                  bound(row.ring_ms[i]))
          << row.ranks << " ranks, " << kBytes[i];
      EXPECT_NEAR(1e3 * net.tree_all_reduce_s(kBytes[i], group), row.tree_ms[i],
                  bound(row.tree_ms[i]))
          << row.ranks << " ranks, " << kBytes[i];
    }
  }
}

TEST(Network, TakesTheFasterAlgorithm) {
  const Network net = network();
  const GroupShape large = group_shape(1024, 1, 8);

  EXPECT_EQ(net.all_reduce_s(1e6, large), net.tree_all_reduce_s(1e6, large));
  EXPECT_EQ(net.all_reduce_s(16e9, group_shape(64, 1, 8)),
            net.ring_all_reduce_s(16e9, group_shape(64, 1, 8)));
}

TEST(Network, GatherAndReduceScatterMakeARing) {
  const Network net = network();
  for (const int ranks : {1, 2, 8, 64}) {
    const GroupShape group = group_shape(ranks, 1, 8);
    EXPECT_DOUBLE_EQ(2 * net.gather_s(1e9, group), net.ring_all_reduce_s(1e9, group));
  }
  EXPECT_EQ(net.all_reduce_s(1e9, group_shape(1, 1, 8)), 0);
}

TEST(Network, TimesRiseWithBytesAndRanks) {
  const Network net = network();
  double before = 0;
  for (double bytes = 1; bytes < 1e11; bytes *= 10) {
    const double now = net.all_reduce_s(bytes, group_shape(64, 1, 8));
    EXPECT_GT(now, before);
    before = now;
  }
  EXPECT_GT(net.gather_s(1e9, group_shape(64, 1, 8)), net.gather_s(1e9, group_shape(8, 1, 8)));
}

TEST(Network, RanksFarApartShareNoNode) {
  EXPECT_EQ(group_shape(16, 8, 8).nodes(), 16);
  EXPECT_EQ(group_shape(16, 2, 8).per_node, 4);
  EXPECT_EQ(group_shape(2, 1, 8).nodes(), 1);
  const Network net = network();

  // Eight groups with one rank on each node have an adapter each.
  EXPECT_GT(net.gather_s(1e9, group_shape(16, 8, 8)), 7 * net.gather_s(1e9, group_shape(16, 1, 8)));
}

TEST(Network, AllToAllSendsOverAdaptersWhatLeavesANode) {
  const Network net = network();

  EXPECT_GT(net.all_to_all_s(1e9, group_shape(16, 1, 8)),
            3 * net.all_to_all_s(1e9, group_shape(8, 1, 8)));
  EXPECT_EQ(net.all_to_all_s(1e9, group_shape(1, 1, 8)), 0);
}

}  // namespace
}  // namespace trireme::planner
