#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "unit/comm/conformance_parts.hpp"
#include "unit/comm/values.hpp"

/// Tests the result of every collective, for every type and several sizes.
namespace trireme::testing {
namespace {

constexpr std::array kOps{comm::ReduceOp::sum, comm::ReduceOp::max, comm::ReduceOp::min};
// 0, 1 and odd sizes; 20011 changes from the small to the chunked algorithm in every type but the
// widest.
constexpr std::array<std::uint64_t, 5> kSizes{0, 1, 7, 1001, 20011};

void expect_reduced(const Bytes& output, std::uint64_t first, std::uint64_t count, DType dtype,
                    comm::ReduceOp op, int size) {
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(get(output, i, dtype), reduced_value(size, first + i, op))
        << dtype_name(dtype) << " element " << first + i;
  }
}

void all_reduce_sweep(comm::Communicator& world) {
  for (const DType dtype : kAllTypes) {
    if (!reduces(world, dtype)) continue;
    for (const comm::ReduceOp op : kOps) {
      for (const std::uint64_t count : kSizes) {
        const Bytes input = whole_values(world.rank(), count, dtype);
        Bytes output(input.size());
        comm::Reduction request{input.data(), output.data(), count, dtype, op};
        world.all_reduce(request)->wait();
        expect_reduced(output, 0, count, dtype, op, world.size());

        Bytes in_place = input;
        request.input = request.output = in_place.data();
        world.all_reduce(request)->wait();
        EXPECT_EQ(in_place, output);
      }
    }
  }
}

void reduce_scatter_sweep(comm::Communicator& world) {
  const auto n = static_cast<std::uint64_t>(world.size());
  const auto me = static_cast<std::uint64_t>(world.rank());
  for (const DType dtype : kAllTypes) {
    if (!reduces(world, dtype)) continue;
    for (const comm::ReduceOp op : kOps) {
      for (const std::uint64_t count : kSizes) {
        Bytes input = whole_values(world.rank(), n * count, dtype);
        Bytes output(count * size_of(dtype));
        comm::Reduction request{input.data(), output.data(), count, dtype, op};
        world.reduce_scatter(request)->wait();
        expect_reduced(output, me * count, count, dtype, op, world.size());

        std::byte* own = input.data() + me * output.size();
        request.output = own;
        world.reduce_scatter(request)->wait();
        EXPECT_TRUE(std::equal(output.begin(), output.end(), own));
      }
    }
  }
}

void all_gather_sweep(comm::Communicator& world) {
  const auto n = static_cast<std::uint64_t>(world.size());
  for (const DType dtype : kAllTypes) {
    for (const std::uint64_t count : kSizes) {
      Bytes expected;
      for (int r = 0; r < world.size(); ++r) {
        const Bytes part = whole_values(r, count, dtype);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const Bytes mine = whole_values(world.rank(), count, dtype);
      Bytes output(n * mine.size());
      comm::AllGather request{mine.data(), output.data(), count, dtype};
      world.all_gather(request)->wait();
      EXPECT_EQ(output, expected);

      Bytes in_place(output.size());
      std::byte* own = in_place.data() + static_cast<std::size_t>(world.rank()) * mine.size();
      std::copy(mine.begin(), mine.end(), own);
      request.input = own;
      request.output = in_place.data();
      world.all_gather(request)->wait();
      EXPECT_EQ(in_place, expected);
    }
  }
}

void broadcast_from_every_root(comm::Communicator& world) {
  for (int root = 0; root < world.size(); ++root) {
    for (const std::uint64_t count : kSizes) {
      const Bytes expected = whole_values(root + 100, count, DType::f32);
      Bytes data = world.rank() == root ? expected : Bytes(expected.size());
      world.broadcast({.data = data.data(), .count = count, .dtype = DType::f32, .root = root})
          ->wait();
      EXPECT_EQ(data, expected) << "root " << root << " count " << count;
    }
  }
}

std::uint64_t uneven(int from, int to) {
  return static_cast<std::uint64_t>((from * 3 + to * 5) % 4 * 501);
}

void all_to_all_uneven(comm::Communicator& world) {
  const int n = world.size();
  std::vector<std::uint64_t> send_counts;
  std::vector<std::uint64_t> receive_counts;
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> expected;
  for (int peer = 0; peer < n; ++peer) {
    send_counts.push_back(uneven(world.rank(), peer));
    receive_counts.push_back(uneven(peer, world.rank()));
    for (std::uint64_t i = 0; i < send_counts.back(); ++i) {
      input.push_back(static_cast<std::int32_t>(i) + 1000 * world.rank() + 100000 * peer);
    }
    for (std::uint64_t i = 0; i < receive_counts.back(); ++i) {
      expected.push_back(static_cast<std::int32_t>(i) + 1000 * peer + 100000 * world.rank());
    }
  }
  std::vector<std::int32_t> output(expected.size() + 1, -1);
  world
      .all_to_all({.input = input.data(),
                   .send_counts = send_counts,
                   .output = output.data(),
                   .receive_counts = receive_counts,
                   .dtype = DType::i32})
      ->wait();
  EXPECT_EQ(output.back(), -1);
  output.pop_back();
  EXPECT_EQ(output, expected);

  const std::vector<std::uint64_t> nothing(static_cast<std::size_t>(n), 0);
  world
      .all_to_all({.input = nullptr,
                   .send_counts = nothing,
                   .output = nullptr,
                   .receive_counts = nothing,
                   .dtype = DType::i32})
      ->wait();
}

void exchange_ring(comm::Communicator& world) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  // Two messages to the same neighbour are received in order; an empty message between them counts
  // as well.
  std::vector<double> out(5000, world.rank());
  std::vector<double> second(17, world.rank() + 0.5);
  std::vector<double> in(5000, -1);
  std::vector<double> in_second(17, -1);
  const std::array sends{comm::Message{next, out.data(), out.size() * 8},
                         comm::Message{next, nullptr, 0},
                         comm::Message{next, second.data(), second.size() * 8}};
  const std::array receives{comm::Message{previous, in.data(), in.size() * 8},
                            comm::Message{previous, nullptr, 0},
                            comm::Message{previous, in_second.data(), in_second.size() * 8}};
  world.exchange({.sends = sends, .receives = receives})->wait();
  EXPECT_EQ(in, std::vector<double>(5000, previous));
  EXPECT_EQ(in_second, std::vector<double>(17, previous + 0.5));

  // In a chain, the last rank only receives and the first only sends.
  double token = world.rank() == 0 ? 42 : 0;
  if (world.rank() > 0)
    world.exchange({.receives = std::array{comm::Message{previous, &token, 8}}})->wait();
  if (next != 0) world.exchange({.sends = std::array{comm::Message{next, &token, 8}}})->wait();
  EXPECT_EQ(token, 42);
}

template <class T>
void one_number_of(comm::Communicator& world) {
  const auto number = [](int rank) { return static_cast<T>(rank + 3); };
  std::vector<T> expected;
  for (int r = 0; r < world.size(); ++r) expected.push_back(number(r));
  const T mine = number(world.rank());
  EXPECT_EQ(comm::all_gather_value(world, mine, "all"), expected);
  EXPECT_EQ(comm::all_reduce_value(world, mine, comm::ReduceOp::max, "last"), expected.back());
  EXPECT_EQ(comm::all_reduce_value(world, mine, comm::ReduceOp::sum, "sum"),
            std::accumulate(expected.begin(), expected.end(), T{0}));
  for (int root = 0; root < world.size(); ++root) {
    EXPECT_EQ(comm::broadcast_value(world, mine, root, "root's"), number(root));
  }
}

void one_number_a_rank(comm::Communicator& world) {
  one_number_of<double>(world);
  one_number_of<float>(world);
  one_number_of<std::int64_t>(world);
  one_number_of<std::int32_t>(world);
  one_number_of<std::uint64_t>(world);
}

constexpr std::array kCollectiveCases{
    ConformanceCase{"AllReduceSweep", all_reduce_sweep},
    ConformanceCase{"ReduceScatterSweep", reduce_scatter_sweep},
    ConformanceCase{"AllGatherSweep", all_gather_sweep},
    ConformanceCase{"BroadcastFromEveryRoot", broadcast_from_every_root},
    ConformanceCase{"AllToAllUneven", all_to_all_uneven},
    ConformanceCase{"ExchangeRing", exchange_ring},
    ConformanceCase{"OneNumberARank", one_number_a_rank},
};

}  // namespace

std::span<const ConformanceCase> collective_cases() {
  return kCollectiveCases;
}

}  // namespace trireme::testing
