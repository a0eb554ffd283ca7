#include "unit/comm/conformance.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "unit/comm/values.hpp"

namespace trireme::testing {
namespace {

constexpr std::array kOps{ReduceOp::sum, ReduceOp::max, ReduceOp::min};
// 0, 1, odd; 20011 crosses from the small to the chunked algorithm in every type but the widest.
constexpr std::array<std::uint64_t, 5> kSizes{0, 1, 7, 1001, 20011};

void expect_reduced(const Bytes& output,
                    std::uint64_t first,
                    std::uint64_t count,
                    DType dtype,
                    ReduceOp op,
                    int size) {
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(get(output, i, dtype), reduced_value(size, first + i, op))
        << dtype_name(dtype) << " element " << first + i;
  }
}

void all_reduce_sweep(Communicator& world) {
  for (const DType dtype : kAllTypes) {
    if (!reduces(world, dtype)) continue;
    for (const ReduceOp op : kOps) {
      for (const std::uint64_t count : kSizes) {
        const Bytes input = whole_values(world.rank(), count, dtype);
        Bytes output(input.size());
        world.all_reduce(input.data(), output.data(), count, dtype, op)->wait();
        expect_reduced(output, 0, count, dtype, op, world.size());

        Bytes in_place = input;
        world.all_reduce(in_place.data(), in_place.data(), count, dtype, op)->wait();
        EXPECT_EQ(in_place, output);
      }
    }
  }
}

void reduce_scatter_sweep(Communicator& world) {
  const auto n = static_cast<std::uint64_t>(world.size());
  const auto me = static_cast<std::uint64_t>(world.rank());
  for (const DType dtype : kAllTypes) {
    if (!reduces(world, dtype)) continue;
    for (const ReduceOp op : kOps) {
      for (const std::uint64_t count : kSizes) {
        Bytes input = whole_values(world.rank(), n * count, dtype);
        Bytes output(count * size_of(dtype));
        world.reduce_scatter(input.data(), output.data(), count, dtype, op)->wait();
        expect_reduced(output, me * count, count, dtype, op, world.size());

        std::byte* own = input.data() + me * output.size();
        world.reduce_scatter(input.data(), own, count, dtype, op)->wait();
        EXPECT_TRUE(std::equal(output.begin(), output.end(), own));
      }
    }
  }
}

void all_gather_sweep(Communicator& world) {
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
      world.all_gather(mine.data(), output.data(), count, dtype)->wait();
      EXPECT_EQ(output, expected);

      Bytes in_place(output.size());
      std::byte* own = in_place.data() + static_cast<std::size_t>(world.rank()) * mine.size();
      std::copy(mine.begin(), mine.end(), own);
      world.all_gather(own, in_place.data(), count, dtype)->wait();
      EXPECT_EQ(in_place, expected);
    }
  }
}

void broadcast_from_every_root(Communicator& world) {
  for (int root = 0; root < world.size(); ++root) {
    for (const std::uint64_t count : kSizes) {
      const Bytes expected = whole_values(root + 100, count, DType::f32);
      Bytes data = world.rank() == root ? expected : Bytes(expected.size());
      world.broadcast(data.data(), count, DType::f32, root)->wait();
      EXPECT_EQ(data, expected) << "root " << root << " count " << count;
    }
  }
}

std::uint64_t uneven(int from, int to) {
  return static_cast<std::uint64_t>((from * 3 + to * 5) % 4 * 501);
}

void all_to_all_uneven(Communicator& world) {
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
  world.all_to_all(input.data(), send_counts, output.data(), receive_counts, DType::i32)->wait();
  EXPECT_EQ(output.back(), -1);
  output.pop_back();
  EXPECT_EQ(output, expected);

  const std::vector<std::uint64_t> nothing(static_cast<std::size_t>(n), 0);
  world.all_to_all(nullptr, nothing, nullptr, nothing, DType::i32)->wait();
}

void exchange_ring(Communicator& world) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  // Two messages to the same neighbour match in order; an empty one in between is a message too.
  std::vector<double> out(5000, world.rank());
  std::vector<double> second(17, world.rank() + 0.5);
  std::vector<double> in(5000, -1);
  std::vector<double> in_second(17, -1);
  const std::array sends{Message{next, out.data(), out.size() * 8},
                         Message{next, nullptr, 0},
                         Message{next, second.data(), second.size() * 8}};
  const std::array receives{Message{previous, in.data(), in.size() * 8},
                            Message{previous, nullptr, 0},
                            Message{previous, in_second.data(), in_second.size() * 8}};
  world.exchange(sends, receives)->wait();
  EXPECT_EQ(in, std::vector<double>(5000, previous));
  EXPECT_EQ(in_second, std::vector<double>(17, previous + 0.5));

  // A chain: the last rank only receives, the first only sends.
  double token = world.rank() == 0 ? 42 : 0;
  if (world.rank() > 0) world.exchange({}, std::array{Message{previous, &token, 8}})->wait();
  if (next != 0) world.exchange(std::array{Message{next, &token, 8}}, {})->wait();
  EXPECT_EQ(token, 42);
}

void several_in_flight(Communicator& world) {
  constexpr std::uint64_t kCount = 30011;
  std::vector<Bytes> sums;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 4; ++i) sums.push_back(whole_values(world.rank() + i, kCount, DType::f32));
  for (auto& sum : sums) {
    works.push_back(
        world.all_reduce(sum.data(), sum.data(), kCount, DType::f32, ReduceOp::sum, {}, "bucket"));
  }
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  const int mine = world.rank();
  works.push_back(world.all_gather(&mine, ranks.data(), 1, DType::i32));
  world.barrier();
  // Even ranks wait from the front, odd ones from the back.
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

void poll_alone_completes(Communicator& world) {
  Bytes data = whole_values(world.rank(), 50021, DType::f32);
  const WorkPtr work = world.all_reduce(data.data(), data.data(), 50021, DType::f32, ReduceOp::sum);
  while (!work->poll()) {
  }
  EXPECT_EQ(get(data, 50020, DType::f32), reduced_value(world.size(), 50020, ReduceOp::sum));
}

float sum_over(Communicator& group, float value) {
  float total = -1;
  group.all_reduce(&value, &total, 1, DType::f32, ReduceOp::sum)->wait();
  return total;
}

void split_by_parity(Communicator& world) {
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

void split_with_negative_color(Communicator& world) {
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

/// Two groups over the same ranks, started in one order and waited for in different ones.
void waiting_in_one_group_drives_the_other(Communicator& world) {
  const auto first = world.split(0, world.rank(), "first");
  const auto second = world.split(0, world.rank(), "second");
  Bytes a = whole_values(world.rank(), 40009, DType::f32);
  Bytes b = whole_values(world.rank() + 1, 40009, DType::f32);
  auto work_a = first->all_reduce(a.data(), a.data(), 40009, DType::f32, ReduceOp::sum);
  auto work_b = second->all_reduce(b.data(), b.data(), 40009, DType::f32, ReduceOp::sum);
  const auto third = world.split(0, world.rank(), "third");  // with operations still under way
  if (world.rank() % 2 == 0) {
    work_a->wait();
    work_b->wait();
  } else {
    work_b->wait();
    work_a->wait();
  }
  EXPECT_EQ(get(a, 40008, DType::f32), reduced_value(world.size(), 40008, ReduceOp::sum));
  third->barrier();
}

/// Sums whose result depends on the order: equal bits on every rank, in every repetition and in
/// every form.
void same_bits_everywhere(Communicator& world) {
  constexpr std::uint64_t kPart = 7001;
  const auto n = static_cast<std::uint64_t>(world.size());
  const std::uint64_t count = n * kPart;
  const auto input = awkward_values(world.rank(), count);
  std::vector<float> once(count);
  std::vector<float> again(count);
  world.all_reduce(input.data(), once.data(), count, DType::f32, ReduceOp::sum)->wait();
  world.all_reduce(input.data(), again.data(), count, DType::f32, ReduceOp::sum)->wait();
  EXPECT_EQ(once, again);

  std::vector<float> all(count * n);
  world.all_gather(once.data(), all.data(), count, DType::f32)->wait();
  for (std::uint64_t r = 0; r < n; ++r) {
    EXPECT_EQ(0, std::memcmp(all.data() + r * count, once.data(), count * sizeof(float)));
  }
  if (std::string_view(world.backend()) == "nccl") return;  // the order of additions is NCCL's

  std::vector<float> expected = awkward_values(0, count);  // rank 0 + rank 1 + ...
  for (int r = 1; r < world.size(); ++r) {
    const auto more = awkward_values(r, count);
    for (std::uint64_t i = 0; i < count; ++i) expected[i] += more[i];
  }
  EXPECT_EQ(once, expected);

  std::vector<float> scattered(kPart);
  world.reduce_scatter(input.data(), scattered.data(), kPart, DType::f32, ReduceOp::sum)->wait();
  EXPECT_EQ(0,
            std::memcmp(scattered.data(),
                        once.data() + static_cast<std::uint64_t>(world.rank()) * kPart,
                        kPart * sizeof(float)));

  std::vector<float> pieces(count);  // cutting into buckets changes nothing
  for (std::uint64_t begin = 0; begin < count; begin += 1237) {
    const std::uint64_t size = std::min<std::uint64_t>(1237, count - begin);
    world.all_reduce(input.data() + begin, pieces.data() + begin, size, DType::f32, ReduceOp::sum)
        ->wait();
  }
  EXPECT_EQ(pieces, once);
}

void half_sums_round_once(Communicator& world) {
  if (std::string_view(world.backend()) == "nccl") return;
  const std::uint64_t count = 3001;
  const auto bits = [](int rank, std::uint64_t i) {
    return to_bf16_bits(1.0F + static_cast<float>(rank) / 128.0F + static_cast<float>(i % 97));
  };
  std::vector<std::uint16_t> data(count);
  for (std::uint64_t i = 0; i < count; ++i) data[i] = bits(world.rank(), i);
  world.all_reduce(data.data(), data.data(), count, DType::bf16, ReduceOp::sum)->wait();
  for (std::uint64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < world.size(); ++r) sum += from_bf16_bits(bits(r, i));
    ASSERT_EQ(data[i], to_bf16_bits(sum)) << i;
  }
}

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

void wrong_use_is_refused(Communicator& world) {
  float x = 1;
  const auto counts = std::vector<std::uint64_t>(static_cast<std::size_t>(world.size()) + 1, 0);
  expect_usage_error([&] { world.broadcast(&x, 1, DType::f32, world.size())->wait(); }, "root");
  expect_usage_error([&] { world.broadcast(&x, 1, DType::f32, -1)->wait(); }, "root");
  expect_usage_error([&] { world.all_to_all(&x, counts, &x, counts, DType::f32)->wait(); },
                     "counts");
  expect_usage_error(
      [&] {
        world.exchange(std::array{Message{world.size(), &x, 4}}, {})->wait();
      },
      "peer");
  expect_usage_error([&] { world.all_reduce(nullptr, &x, 1, DType::f32, ReduceOp::sum)->wait(); },
                     "null");
  expect_usage_error(
      [&] { world.all_reduce(&x, &x, 1, static_cast<DType>(77), ReduceOp::sum)->wait(); },
      "not supported");
  expect_usage_error(
      [&] { world.reduce_scatter(&x, &x, 1, DType::f32, static_cast<ReduceOp>(9))->wait(); },
      "not supported");
  EXPECT_EQ(sum_over(world, 2), static_cast<float>(2 * world.size()));  // and nothing has moved
}

void bytes_follow_the_formulas(Communicator& world) {
  const auto group = world.split(0, world.rank(), "count");
  const auto n = static_cast<std::uint64_t>(world.size());
  std::vector<float> data(n * 100);
  std::vector<float> out(n * 100);
  const auto sent_by = [&](const auto& call) {
    const ByteCounters before = group->counters();
    call();
    const ByteCounters after = group->counters();
    EXPECT_EQ(after.operations, before.operations + 1);
    return after.sent - before.sent;
  };
  EXPECT_EQ(
      sent_by([&] {
        group->all_reduce(data.data(), out.data(), n * 100, DType::f32, ReduceOp::sum)->wait();
      }),
      2 * (n - 1) * 400);
  EXPECT_EQ(
      sent_by([&] {
        group->reduce_scatter(data.data(), out.data(), 100, DType::f32, ReduceOp::sum)->wait();
      }),
      (n - 1) * 400);
  EXPECT_EQ(sent_by([&] { group->all_gather(data.data(), out.data(), 100, DType::f32)->wait(); }),
            (n - 1) * 400);
  EXPECT_EQ(sent_by([&] { group->barrier(); }), 0);
  const std::vector<std::uint64_t> counts(n, 100);
  EXPECT_EQ(sent_by([&] {
              group->all_to_all(data.data(), counts, out.data(), counts, DType::f32)->wait();
            }),
            (n - 1) * 400);
}

void recorder_keeps_the_last(Communicator& world) {
  const auto group = world.split(0, world.rank(), "recorded");
  float x = 1;
  for (int i = 0; i < 300; ++i) {
    group->all_reduce(&x, &x, 1, DType::f32, ReduceOp::max, {}, i == 299 ? "last" : "")->wait();
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
}

constexpr std::array kCases{
    ConformanceCase{"AllReduceSweep", all_reduce_sweep},
    ConformanceCase{"ReduceScatterSweep", reduce_scatter_sweep},
    ConformanceCase{"AllGatherSweep", all_gather_sweep},
    ConformanceCase{"BroadcastFromEveryRoot", broadcast_from_every_root},
    ConformanceCase{"AllToAllUneven", all_to_all_uneven},
    ConformanceCase{"ExchangeRing", exchange_ring},
    ConformanceCase{"SeveralInFlight", several_in_flight},
    ConformanceCase{"PollAloneCompletes", poll_alone_completes},
    ConformanceCase{"SplitByParity", split_by_parity},
    ConformanceCase{"SplitWithNegativeColor", split_with_negative_color},
    ConformanceCase{"WaitingInOneGroupDrivesTheOther", waiting_in_one_group_drives_the_other},
    ConformanceCase{"SameBitsEverywhere", same_bits_everywhere},
    ConformanceCase{"HalfSumsRoundOnce", half_sums_round_once},
    ConformanceCase{"WrongUseIsRefused", wrong_use_is_refused},
    ConformanceCase{"BytesFollowTheFormulas", bytes_follow_the_formulas},
    ConformanceCase{"RecorderKeepsTheLast", recorder_keeps_the_last},
};

}  // namespace

std::span<const ConformanceCase> conformance_cases() {
  return kCases;
}

}  // namespace trireme::testing
