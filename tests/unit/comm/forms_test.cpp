#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "comm/p2p/volume.hpp"
#include "comm/reduce.hpp"
#include "comm/thread/thread_world.hpp"
#include "comm/traffic.hpp"
#include "core/error.hpp"
#include "unit/comm/values.hpp"

/// Tests the forms of the p2p collectives: messages, memory, and equal bits of each.

namespace {

thread_local std::size_t t_largest = 0;  // allocation of this thread

}  // namespace

// This function is not inlined, because the compiler takes malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  t_largest = std::max(t_largest, size);
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}

// Sanitizers have an own allocator for each form; all of them that end in the delete below are
// replaced here.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  t_largest = std::max(t_largest, size);
  return std::malloc(size);
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace trireme::testing {
namespace {

/// Returns the reduction of the ranks' buffers by definition.
Bytes reduced_directly(int size, std::uint64_t count, DType dtype, comm::ReduceOp op) {
  std::vector<Bytes> inputs;
  std::vector<const void*> pointers;
  for (int rank = 0; rank < size; ++rank) {
    Bytes& input = inputs.emplace_back(count * size_of(dtype));
    const std::vector<float> values = awkward_values(rank, count);
    for (std::uint64_t i = 0; i < count; ++i) put(input, i, dtype, static_cast<double>(values[i]));
  }
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  Bytes result(count * size_of(dtype));
  comm::reduce_in_order(pointers, result.data(), count, dtype, op);
  return result;
}

/// Expects that an all_reduce of every rank's values, which round, has these bits. Returns the
/// largest number of messages that one rank sent.
std::uint64_t most_messages(int size, std::uint64_t count, DType dtype, comm::ReduceOp op) {
  const Bytes expected = reduced_directly(size, count, dtype, op);
  std::vector<std::uint64_t> messages(static_cast<std::size_t>(size));
  comm::run_ranks(size, [&](comm::Communicator& world) {
    Bytes data(count * size_of(dtype));
    const std::vector<float> values = awkward_values(world.rank(), count);
    for (std::uint64_t i = 0; i < count; ++i) put(data, i, dtype, static_cast<double>(values[i]));
    world.all_reduce({data.data(), data.data(), count, dtype, op})->wait();
    EXPECT_EQ(data, expected) << size << " ranks, " << count << " of " << dtype_name(dtype);
    const comm::TrafficRow sent = comm::total_traffic(world.traffic());
    EXPECT_EQ(sent.moved_bytes, comm::sent_bytes("all_reduce", size, world.rank(), data.size()));
    messages[static_cast<std::size_t>(world.rank())] = sent.messages.value();
  });
  return *std::max_element(messages.begin(), messages.end());
}

std::uint64_t log2_up(int size) {
  return static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(size) - 1));
}

TEST(Forms, FewBytesGoInRoundsWithTheBitsOfTheDirectForm) {
  for (int size = 2; size <= 9; ++size) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      for (const std::uint64_t count : {1, 3, 101}) {
        ASSERT_EQ(comm::all_reduce_form(size, count * size_of(dtype)), comm::AllReduceForm::rounds);
        EXPECT_EQ(most_messages(size, count, dtype, comm::ReduceOp::sum), log2_up(size));
      }
    }
    EXPECT_EQ(most_messages(size, 5, DType::f32, comm::ReduceOp::min), log2_up(size));
  }
}

TEST(Forms, SmallGathersGoInRoundsToo) {
  for (int size = 2; size <= 9; ++size) {
    comm::run_ranks(size, [size](comm::Communicator& world) {
      std::vector<double> mine{world.rank() + 0.5, -1.0 * world.rank(), 7};
      std::vector<double> all(3 * static_cast<std::size_t>(size));
      world
          .all_gather({.input = mine.data(), .output = all.data(), .count = 3, .dtype = DType::f64})
          ->wait();
      for (int rank = 0; rank < size; ++rank) {
        const auto at = static_cast<std::size_t>(rank) * 3;
        EXPECT_EQ(all[at], rank + 0.5);
        EXPECT_EQ(all[at + 1], -rank);
      }
      const comm::TrafficRow sent = comm::total_traffic(world.traffic());
      EXPECT_EQ(sent.messages, log2_up(size));
      EXPECT_EQ(sent.moved_bytes, comm::sent_bytes("all_gather", size, world.rank(), 24));
    });
  }
}

TEST(Forms, ManyRanksWithSomeBytesUseATreeWithTheSameBits) {
  for (const int size : {17, 20, 33}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::uint64_t count = 4096 / size_of(dtype);
      ASSERT_EQ(comm::all_reduce_form(size, 4096), comm::AllReduceForm::tree);
      EXPECT_LE(most_messages(size, count, dtype, comm::ReduceOp::sum), log2_up(size) + 1);
    }
  }
}

TEST(Forms, LargeBuffersKeepTheBitsHoweverTheyAreCut) {
  for (int size = 2; size <= 5; ++size) {
    for (const std::uint64_t count : {20011, 300007}) {
      ASSERT_EQ(comm::all_reduce_form(size, count * 4), comm::AllReduceForm::segmented);
      most_messages(size, count, DType::f32, comm::ReduceOp::sum);
    }
  }
}

TEST(Forms, AReductionTakesNoMoreMemoryThanItsBuffer) {
  for (const int size : {2, 4}) {
    for (const std::uint64_t bytes : {200'000U, 1'000'000U, 9'000'000U}) {
      comm::run_ranks(size, [&](comm::Communicator& world) {
        Bytes data(bytes);
        Bytes part(bytes / static_cast<std::uint64_t>(size));
        const auto largest_of = [](const comm::WorkPtr& work) {
          work->wait();
          return std::exchange(t_largest, 0);
        };
        t_largest = 0;
        const comm::Reduction whole{data.data(), data.data(), bytes, DType::u8,
                                    comm::ReduceOp::sum};
        EXPECT_LE(largest_of(world.all_reduce(whole)), bytes);
        const comm::Reduction scatter{data.data(), part.data(), part.size(), DType::u8,
                                      comm::ReduceOp::sum};
        EXPECT_LE(largest_of(world.reduce_scatter(scatter)), bytes);
      });
    }
  }
}

/// Compares the formulas with numbers computed by hand.
TEST(Volume, IsWhatTheFormsSend) {
  EXPECT_EQ(comm::sent_bytes("all_reduce", 1, 0, 1'000'000), 0U);
  EXPECT_EQ(comm::sent_bytes("all_reduce", 8, 3, 8), 7 * 8U);
  // 1,000,000 bytes on 3 ranks: shards of 333,376, 333,376 and 333,248.
  EXPECT_EQ(comm::sent_bytes("all_reduce", 3, 0, 1'000'000), 1'000'000 + 333'376U);
  EXPECT_EQ(comm::sent_bytes("all_reduce", 3, 2, 1'000'000), 1'000'000 + 333'248U);
  // A tree of 20 ranks: rank 16 has the subtree 16 to 19 and the children 17 and 18.
  EXPECT_EQ(comm::sent_bytes("all_reduce", 20, 16, 4000), (4 + 2) * 4000U);
  EXPECT_EQ(comm::sent_bytes("all_reduce", 20, 0, 4000), 5 * 4000U);
  EXPECT_EQ(comm::sent_bytes("all_reduce", 20, 19, 4000), 4000U);
  EXPECT_EQ(comm::sent_bytes("reduce_scatter", 4, 1, 4000), 3000U);
  EXPECT_EQ(comm::sent_bytes("all_gather", 4, 1, 1000), 3000U);
  EXPECT_EQ(comm::sent_bytes("broadcast", 5, 1, 10, 1), 30U);  // the root, with 3 children
  EXPECT_EQ(comm::sent_bytes("broadcast", 5, 3, 10, 1), 10U);  // two ranks after it, with 1 child
  EXPECT_EQ(comm::sent_bytes(1, std::vector<std::uint64_t>{5, 6, 0, 7}), 12U);
  EXPECT_THROW(comm::sent_bytes("all_to_all", 4, 0, 100), Error);
}

/// One rank sends what another receives: 2 (n - 1) buffers are sent in total.
TEST(Volume, AddsUpForAnAllReduce) {
  for (const int size : {2, 3, 7, 64, 1024}) {
    for (const std::uint64_t bytes : {200'004UL, 1'000'000UL, 64UL << 20}) {
      std::uint64_t all = 0;
      for (int rank = 0; rank < size; ++rank)
        all += comm::sent_bytes("all_reduce", size, rank, bytes);
      EXPECT_EQ(all, 2 * (static_cast<std::uint64_t>(size) - 1) * bytes) << size << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace trireme::testing
