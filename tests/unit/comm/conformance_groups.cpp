#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "unit/comm/conformance_parts.hpp"
#include "unit/comm/values.hpp"

/// Tests several operations in flight, in one group and in several, and how groups are made.
namespace trireme::testing {
namespace {

void several_in_flight(comm::Communicator& world) {
  constexpr std::uint64_t kCount = 30011;
  std::vector<Bytes> sums;
  std::vector<comm::WorkPtr> works;
  for (int i = 0; i < 4; ++i) sums.push_back(whole_values(world.rank() + i, kCount, DType::f32));
  for (auto& sum : sums) {
    works.push_back(world.all_reduce(f32_sum(sum.data(), sum.data(), kCount, "bucket")));
  }
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  const int mine = world.rank();
  works.push_back(
      world.all_gather({.input = &mine, .output = ranks.data(), .count = 1, .dtype = DType::i32}));
  world.barrier();
  // Even ranks wait from the front, odd ranks from the back.
  while (!works.empty()) {
    const auto at = world.rank() % 2 == 0 ? works.begin() : works.end() - 1;
    (*at)->wait();
    EXPECT_TRUE((*at)->poll());
    works.erase(at);
  }
  std::vector<int> expected(ranks.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(ranks, expected);
  for (int i = 0; i < 4; ++i) {
    double value = 0;
    for (int r = 0; r < world.size(); ++r) value += whole_value(r + i, kCount - 1);
    EXPECT_EQ(get(sums[static_cast<std::size_t>(i)], kCount - 1, DType::f32), value);
  }
}

void poll_alone_completes(comm::Communicator& world) {
  Bytes data = whole_values(world.rank(), 50021, DType::f32);
  const comm::WorkPtr work = world.all_reduce(f32_sum(data.data(), data.data(), 50021));
  while (!work->poll()) {
  }
  EXPECT_EQ(get(data, 50020, DType::f32), reduced_value(world.size(), 50020, comm::ReduceOp::sum));
}

void split_by_parity(comm::Communicator& world) {
  const auto mine = static_cast<float>(world.rank() + 1);
  const auto group = world.split(world.rank() % 2, -world.rank(), "parity");  // reversed order
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->name(), "parity");
  float expected = 0;
  int members = 0;
  int before = 0;
  for (int r = world.rank() % 2; r < world.size(); r += 2) {
    expected += static_cast<float>(r + 1);
    ++members;
    if (r > world.rank()) ++before;
  }
  EXPECT_EQ(group->size(), members);
  EXPECT_EQ(group->rank(), before);
  EXPECT_EQ(sum_over(*group, mine), expected);

  const auto nested = group->split(0, group->rank(), "nested");
  EXPECT_EQ(nested->rank(), group->rank());
  EXPECT_EQ(sum_over(*nested, mine), expected);

  const auto alone = world.split(world.rank(), 0, "alone");
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->name(), "alone");
  EXPECT_EQ(sum_over(*alone, mine), mine);
}

void split_with_negative_color(comm::Communicator& world) {
  const auto group = world.split(world.rank() == 0 ? -1 : 0, 0, "rest");
  if (world.rank() == 0) {
    EXPECT_EQ(group, nullptr);
  } else {
    EXPECT_EQ(group->size(), world.size() - 1);
    EXPECT_EQ(group->rank(), world.rank() - 1);
    EXPECT_EQ(sum_over(*group, 1), static_cast<float>(world.size() - 1));
  }
  world.barrier();
}

/// Starts operations of two groups over the same ranks in one order, and waits for them in
/// different orders.
void waiting_in_one_group_drives_the_other(comm::Communicator& world) {
  const auto first = world.split(0, world.rank(), "first");
  const auto second = world.split(0, world.rank(), "second");
  Bytes a = whole_values(world.rank(), 40009, DType::f32);
  Bytes b = whole_values(world.rank() + 1, 40009, DType::f32);
  auto work_a = first->all_reduce(f32_sum(a.data(), a.data(), 40009));
  auto work_b = second->all_reduce(f32_sum(b.data(), b.data(), 40009));
  const auto third = world.split(0, world.rank(), "third");  // while operations are still in flight
  if (world.rank() % 2 == 0) {
    work_a->wait();
    work_b->wait();
  } else {
    work_b->wait();
    work_a->wait();
  }
  EXPECT_EQ(get(a, 40008, DType::f32), reduced_value(world.size(), 40008, comm::ReduceOp::sum));
  third->barrier();
}

constexpr std::array kGroupCases{
    ConformanceCase{"SeveralInFlight", several_in_flight},
    ConformanceCase{"PollAloneCompletes", poll_alone_completes},
    ConformanceCase{"SplitByParity", split_by_parity},
    ConformanceCase{"SplitWithNegativeColor", split_with_negative_color},
    ConformanceCase{"WaitingInOneGroupDrivesTheOther", waiting_in_one_group_drives_the_other},
};

}  // namespace

std::span<const ConformanceCase> group_cases() {
  return kGroupCases;
}

}  // namespace trireme::testing
