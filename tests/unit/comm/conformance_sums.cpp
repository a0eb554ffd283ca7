#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "unit/comm/conformance_parts.hpp"
#include "unit/comm/values.hpp"

/// Tests the order and the rounding of sums.
namespace trireme::testing {
namespace {

/// Sums with a result that depends on the order have equal bits on every rank, in every repetition
/// and in every form.
void same_bits_everywhere(comm::Communicator& world) {
  constexpr std::uint64_t kPart = 7001;
  const auto n = static_cast<std::uint64_t>(world.size());
  const std::uint64_t count = n * kPart;
  const auto input = awkward_values(world.rank(), count);
  std::vector<float> once(count);
  std::vector<float> again(count);
  world.all_reduce(f32_sum(input.data(), once.data(), count))->wait();
  world.all_reduce(f32_sum(input.data(), again.data(), count))->wait();
  EXPECT_EQ(once, again);

  std::vector<float> all(count * n);
  world
      .all_gather({.input = once.data(), .output = all.data(), .count = count, .dtype = DType::f32})
      ->wait();
  for (std::uint64_t r = 0; r < n; ++r) {
    EXPECT_EQ(0, std::memcmp(all.data() + r * count, once.data(), count * sizeof(float)));
  }
  if (std::string_view(world.backend()) == "nccl") return;  // NCCL decides the order of additions

  std::vector<float> expected = awkward_values(0, count);  // rank 0 + rank 1 + ...
  for (int r = 1; r < world.size(); ++r) {
    const auto more = awkward_values(r, count);
    for (std::uint64_t i = 0; i < count; ++i) expected[i] += more[i];
  }
  EXPECT_EQ(once, expected);

  std::vector<float> scattered(kPart);
  world.reduce_scatter(f32_sum(input.data(), scattered.data(), kPart))->wait();
  EXPECT_EQ(0, std::memcmp(scattered.data(),
                           once.data() + static_cast<std::uint64_t>(world.rank()) * kPart,
                           kPart * sizeof(float)));

  std::vector<float> pieces(count);  // splitting into buckets changes nothing
  for (std::uint64_t begin = 0; begin < count; begin += 1237) {
    const std::uint64_t size = std::min<std::uint64_t>(1237, count - begin);
    world.all_reduce(f32_sum(input.data() + begin, pieces.data() + begin, size))->wait();
  }
  EXPECT_EQ(pieces, once);
}

void half_sums_round_once(comm::Communicator& world) {
  if (std::string_view(world.backend()) == "nccl") return;
  const std::uint64_t count = 3001;
  const auto bits = [](int rank, std::uint64_t i) {
    return to_bf16_bits(1.0F + static_cast<float>(rank) / 128.0F + static_cast<float>(i % 97));
  };
  std::vector<std::uint16_t> data(count);
  for (std::uint64_t i = 0; i < count; ++i) data[i] = bits(world.rank(), i);
  world
      .all_reduce({.input = data.data(),
                   .output = data.data(),
                   .count = count,
                   .dtype = DType::bf16,
                   .op = comm::ReduceOp::sum})
      ->wait();
  for (std::uint64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < world.size(); ++r) sum += from_bf16_bits(bits(r, i));
    ASSERT_EQ(data[i], to_bf16_bits(sum)) << i;
  }
}

constexpr std::array kSumCases{
    ConformanceCase{"SameBitsEverywhere", same_bits_everywhere},
    ConformanceCase{"HalfSumsRoundOnce", half_sums_round_once},
};

}  // namespace

std::span<const ConformanceCase> sum_cases() {
  return kSumCases;
}

}  // namespace trireme::testing
