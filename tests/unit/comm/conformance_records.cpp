#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "unit/comm/conformance_parts.hpp"
#include "unit/comm/values.hpp"

/// Tests what is refused, and what each call records.
namespace trireme::testing {
namespace {

template <class Call>
void expect_usage_error(const Call& call, const char* part) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one about: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

void wrong_use_is_refused(comm::Communicator& world) {
  float x = 1;
  const auto counts = std::vector<std::uint64_t>(static_cast<std::size_t>(world.size()) + 1, 0);
  expect_usage_error(
      [&] {
        world.broadcast({.data = &x, .count = 1, .dtype = DType::f32, .root = world.size()})
            ->wait();
      },
      "root");
  expect_usage_error(
      [&] { world.broadcast({.data = &x, .count = 1, .dtype = DType::f32, .root = -1})->wait(); },
      "root");
  expect_usage_error(
      [&] {
        world
            .all_to_all({.input = &x,
                         .send_counts = counts,
                         .output = &x,
                         .receive_counts = counts,
                         .dtype = DType::f32})
            ->wait();
      },
      "counts");
  expect_usage_error(
      [&] {
        world.exchange({.sends = std::array{comm::Message{world.size(), &x, 4}}})->wait();
      },
      "peer");
  expect_usage_error([&] { world.all_reduce(f32_sum(nullptr, &x, 1))->wait(); }, "null");
  comm::Reduction sum = f32_sum(&x, &x, 1);
  sum.dtype = static_cast<DType>(77);
  expect_usage_error([&] { world.all_reduce(sum)->wait(); }, "not supported");
  sum = f32_sum(&x, &x, 1);
  sum.op = static_cast<comm::ReduceOp>(9);
  expect_usage_error([&] { world.reduce_scatter(sum)->wait(); }, "not supported");
  EXPECT_EQ(sum_over(world, 2), static_cast<float>(2 * world.size()));  // no byte was sent
}

void recorder_keeps_the_last(comm::Communicator& world) {
  const auto group = world.split(0, world.rank(), "recorded");
  for (int i = 0; i < 300; ++i) {
    comm::all_reduce_value(*group, 1.0F, comm::ReduceOp::max, i == 299 ? "last" : "");
  }
  auto records = group->recent();
  for (int i = 0; i < 500 && !(records.front().complete && records.back().complete); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // a device completes them later
    records = group->recent();
  }
  ASSERT_EQ(records.size(), 256U);
  EXPECT_EQ(records.back().tag, "last");
  EXPECT_EQ(records.back().operation, "all_reduce");
  EXPECT_EQ(records.back().bytes, 4U);
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].sequence, records.front().sequence + i);
    EXPECT_TRUE(records[i].complete);
  }
  group->barrier({.tag = "together"});
  EXPECT_EQ(group->recent().back().operation, "barrier");
  EXPECT_EQ(group->recent().back().tag, "together");
}

constexpr std::array kRecordCases{
    ConformanceCase{"WrongUseIsRefused", wrong_use_is_refused},
    ConformanceCase{"RecorderKeepsTheLast", recorder_keeps_the_last},
};

}  // namespace

std::span<const ConformanceCase> record_cases() {
  return kRecordCases;
}

}  // namespace trireme::testing
