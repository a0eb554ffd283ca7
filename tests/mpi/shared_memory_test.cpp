#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/factory.hpp"
#include "core/error.hpp"
#include "mpi/launch_main.hpp"
#include "unit/comm/values.hpp"

/// Tests the collectives through shared memory: they have the bits of messages and the same errors.
namespace trireme::testing {
namespace {

using comm::SharedMemory;

comm::CommOptions with_memory(SharedMemory shared_memory, double timeout_s = 60) {
  comm::CommOptions options;
  options.timeout_s = timeout_s;
  options.chunk_bytes = 16384;  // several turns of each ring
  options.shared_memory = shared_memory;
  return options;
}

std::unique_ptr<comm::Communicator> world_with(SharedMemory shared_memory, double timeout_s = 60) {
  return comm::make_world("mpi", *g_launch, with_memory(shared_memory, timeout_s));
}

/// Returns values with a sum that depends on the order of additions, in floating-point types.
Bytes awkward_bytes(int rank, std::uint64_t count, DType dtype) {
  const std::vector<float> values = awkward_values(rank, count);
  const bool integer = dtype >= DType::i64;
  Bytes bytes(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i)
    put(bytes, i, dtype, integer ? whole_value(rank, i) : static_cast<double>(values[i]));
  return bytes;
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The results of all collectives with one buffer size.
std::vector<Bytes> results_of(comm::Communicator& world, std::uint64_t count, DType dtype,
                              comm::ReduceOp op, bool in_place) {
  const auto n = static_cast<std::uint64_t>(world.size());
  const auto rank = static_cast<std::uint64_t>(world.rank());
  const Bytes input = awkward_bytes(world.rank(), n * count, dtype);
  const std::uint64_t part = count * size_of(dtype);

  Bytes sum = in_place ? input : Bytes(input.size());
  world.all_reduce({in_place ? sum.data() : input.data(), sum.data(), n * count, dtype, op})
      ->wait();

  Bytes scattered = in_place ? input : Bytes(part);
  std::byte* const own = in_place ? scattered.data() + rank * part : scattered.data();
  world.reduce_scatter({in_place ? scattered.data() : input.data(), own, count, dtype, op})->wait();
  scattered = Bytes(own, own + part);

  Bytes all = in_place ? input : Bytes(input.size());
  world
      .all_gather(
          {in_place ? all.data() + rank * part : input.data() + part, all.data(), count, dtype})
      ->wait();

  std::vector<Bytes> results{sum, scattered, all};
  Bytes& data = results.emplace_back(input);
  world.broadcast({data.data(), n * count, dtype, world.size() - 1})->wait();
  return results;
}

TEST(SharedMemoryWorld, HasTheBitsOfMessages) {
  const auto shared = world_with(SharedMemory::always);
  const auto messages = world_with(SharedMemory::never);
  if (shared->size() == 1) GTEST_SKIP() << "needs two ranks";
  ASSERT_TRUE(shared->shares_memory());
  ASSERT_FALSE(messages->shares_memory());
  for (const DType dtype : kAllTypes) {
    for (const std::uint64_t count : {0, 1, 4097, 33003}) {
      const bool in_place = count % 2 == 0 || dtype == DType::bf16;
      ASSERT_EQ(results_of(*shared, count, dtype, comm::ReduceOp::sum, in_place),
                results_of(*messages, count, dtype, comm::ReduceOp::sum, in_place))
          << dtype_name(dtype) << ' ' << count;
    }
    const comm::ReduceOp op = dtype == DType::bf16 ? comm::ReduceOp::min : comm::ReduceOp::max;
    ASSERT_EQ(results_of(*shared, 20011, dtype, op, /*in_place=*/true),
              results_of(*messages, 20011, dtype, op, /*in_place=*/true))
        << dtype_name(dtype);
  }
}

TEST(SharedMemoryWorld, OperationsOfSeveralGroupsAreInFlightTogether) {
  const auto world = world_with(SharedMemory::automatic);
  const auto same = world->split(0, -world->rank(), "reversed");
  const auto pairs = world->split(world->rank() / 2, world->rank(), "pairs");
  std::vector<std::vector<float>> buffers;
  std::vector<comm::WorkPtr> pending;
  constexpr int kRounds = 12;
  for (int round = 0; round < kRounds; ++round)
    buffers.emplace_back(20000 + 777 * round, static_cast<float>(world->rank() + round));
  for (int round = 0; round < kRounds; ++round) {
    comm::Communicator& group = *std::array{world.get(), same.get(), pairs.get()}[round % 3];
    std::vector<float>& buffer = buffers[static_cast<std::size_t>(round)];
    pending.push_back(group.all_reduce(f32_sum(buffer.data(), buffer.data(), buffer.size())));
  }
  for (auto work = pending.rbegin(); work != pending.rend(); ++work) (*work)->wait();
  const int n = world->size();
  for (int round = 0; round < kRounds; ++round) {
    const int first = round % 3 == 2 ? world->rank() / 2 * 2 : 0;
    const int ranks = round % 3 == 2 ? pairs->size() : n;
    float sum = 0;
    for (int rank = first; rank < first + ranks; ++rank) sum += static_cast<float>(rank + round);
    for (const float value : buffers[static_cast<std::size_t>(round)]) ASSERT_EQ(value, sum);
  }
}

TEST(SharedMemoryWorld, MissingRankTimesOutAndTheGroupIsUnusable) {
  const auto outer = world_with(SharedMemory::never);
  if (outer->size() == 1) GTEST_SKIP() << "needs two ranks";
  {
    const auto world = world_with(SharedMemory::always, /*timeout_s=*/0.3);
    std::vector<float> data(1 << 20);
    const auto all_reduce = [&] {
      world->all_reduce(f32_sum(data.data(), data.data(), data.size(), "loss"))->wait();
    };
    if (world->rank() == 1) {
      const std::string first = error_of(all_reduce);
      EXPECT_TRUE(contains(first, "all_reduce 'loss' of group world (rank 1")) << first;
      EXPECT_TRUE(contains(first, "not complete after 0.3 s")) << first;
      const std::string second = error_of(all_reduce);
      EXPECT_TRUE(contains(second, "earlier operation")) << second;
    }
    outer->barrier();
  }
}

TEST(SharedMemoryWorld, DifferentSizesAreNamed) {
  const auto outer = world_with(SharedMemory::never);
  if (outer->size() != 2) GTEST_SKIP() << "needs two ranks exactly";
  {
    const auto world = world_with(SharedMemory::always, /*timeout_s=*/5);
    std::vector<float> data(50000);
    const std::uint64_t count = world->rank() == 0 ? 50000 : 40000;
    const std::string error =
        error_of([&] { world->all_reduce(f32_sum(data.data(), data.data(), count))->wait(); });
    EXPECT_TRUE(contains(error, "the ranks called the operation with different sizes")) << error;
    outer->barrier();
  }
}

/// Limits the size of files, and so of shared memory, on one rank.
class SmallFiles {
 public:
  explicit SmallFiles(bool here) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = 1000;
    if (here) setrlimit(RLIMIT_FSIZE, &small);
  }

  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(SharedMemoryWorld, MessagesReplaceMemoryThatTheSystemRefuses) {
  if (g_launch->size == 1) GTEST_SKIP() << "needs two ranks";
  std::unique_ptr<comm::Communicator> world;
  std::string error;
  {
    const SmallFiles limit(g_launch->rank == 0);
    world = world_with(SharedMemory::automatic);
    error = error_of([] { world_with(SharedMemory::always); });
  }

  EXPECT_FALSE(world->shares_memory());
  std::vector<float> data(100003, 1);
  world->all_reduce(f32_sum(data.data(), data.data(), data.size()))->wait();
  EXPECT_EQ(data.back(), static_cast<float>(world->size()));
  EXPECT_TRUE(contains(error, "parallel.shared_memory is true, but rank 0")) << error;
  EXPECT_EQ(contains(error, "the limit of file sizes is 1000"), g_launch->rank == 0) << error;
}

TEST(SharedMemoryWorld, NodesExchangeMessages) {
  if (g_launch->size == 1) GTEST_SKIP() << "needs two ranks";
  comm::LaunchInfo launch = *g_launch;
  launch.node = launch.rank == 0 ? 0 : 1;
  const auto world = comm::make_world("mpi", launch, with_memory(SharedMemory::always));
  EXPECT_FALSE(world->shares_memory());
  const auto node = world->split(launch.node, world->rank(), "node");
  EXPECT_EQ(node->shares_memory(), node->size() > 1);
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  return trireme::testing::run_launched_tests(argc, argv);
}
