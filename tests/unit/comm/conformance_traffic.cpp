#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/p2p/volume.hpp"
#include "comm/traffic.hpp"
#include "unit/comm/conformance_parts.hpp"
#include "unit/comm/values.hpp"

/// Tests the recorded traffic of each call: the sent bytes equal those of the formula.
namespace trireme::testing {
namespace {

// Tests round, tree and segmented forms, shards of less than a cache line and empty ones, odd
// counts.
constexpr std::array<std::uint64_t, 9> kCounts{0, 1, 7, 49, 1001, 4099, 20011, 65537, 150001};
constexpr std::array kTypes{DType::f64, DType::f32, DType::bf16, DType::u8};

/// A group of all ranks; its traffic comes only from the test.
class CountedGroup {
 public:
  explicit CountedGroup(comm::Communicator& world)
      : group_(world.split(0, world.rank(), "count")) {}

  comm::Communicator& operator*() { return *group_; }

  comm::Communicator* operator->() { return group_.get(); }

  /// Expects one call, "grads bucket N", with this payload and formula.
  template <class Call>
  void expect(std::string_view operation, std::uint64_t payload, std::uint64_t formula,
              const Call& call) {
    const auto before = group_->traffic();
    call("grads bucket " + std::to_string(++calls_));
    const auto rows = comm::traffic_between(before, group_->traffic());
    ASSERT_EQ(rows.size(), 1U) << operation;
    const comm::TrafficRow& row = rows.front();
    EXPECT_EQ(row.operation, operation);
    EXPECT_EQ(row.purpose, "grads bucket");
    EXPECT_EQ(row.count, 1U);
    EXPECT_EQ(row.payload_bytes, payload) << operation;
    EXPECT_EQ(row.moved_bytes, counted() ? std::optional(formula) : std::nullopt)
        << operation << " of " << payload << " bytes on " << group_->size() << " ranks";
    EXPECT_EQ(row.messages.has_value(), counted());
  }

  /// Returns the number of messages of one call.
  template <class Call>
  std::uint64_t messages_of(const Call& call) {
    const auto before = group_->traffic();
    call();
    return comm::total_traffic(comm::traffic_between(before, group_->traffic()))
        .messages.value_or(0);
  }

  [[nodiscard]] bool counted() const {
    return group_->size() == 1 || std::string_view(group_->backend()) != "nccl";
  }

  [[nodiscard]] bool shared() const { return group_->shares_memory(); }

 private:
  const std::unique_ptr<comm::Communicator> group_;
  int calls_ = 0;
};

void reductions_send_the_formula(comm::Communicator& world) {
  CountedGroup group(world);
  const int n = world.size();
  const auto ranks = static_cast<std::uint64_t>(n);
  for (const DType dtype : kTypes) {
    for (const std::uint64_t count : kCounts) {
      const std::uint64_t bytes = count * size_of(dtype);
      Bytes input(ranks * bytes);
      Bytes output(ranks * bytes);
      for (const bool in_place : {false, true}) {
        std::byte* const to = in_place ? input.data() : output.data();
        std::byte* const part =
            in_place ? to + static_cast<std::uint64_t>(world.rank()) * bytes : to;
        group.expect("all_reduce", bytes, comm::sent_bytes("all_reduce", n, world.rank(), bytes),
                     [&](const std::string& tag) {
                       group
                           ->all_reduce({.input = input.data(),
                                         .output = to,
                                         .count = count,
                                         .dtype = dtype,
                                         .op = comm::ReduceOp::max,
                                         .tag = tag})
                           ->wait();
                     });
        group.expect("reduce_scatter", ranks * bytes,
                     comm::sent_bytes("reduce_scatter", n, world.rank(), ranks * bytes),
                     [&](const std::string& tag) {
                       group
                           ->reduce_scatter({.input = input.data(),
                                             .output = part,
                                             .count = count,
                                             .dtype = dtype,
                                             .op = comm::ReduceOp::sum,
                                             .tag = tag})
                           ->wait();
                     });
      }
    }
  }
}

void copies_send_the_formula(comm::Communicator& world) {
  CountedGroup group(world);
  const int n = world.size();
  const auto ranks = static_cast<std::uint64_t>(n);
  for (const std::uint64_t count : kCounts) {
    const std::uint64_t bytes = count * sizeof(float);
    Bytes input(bytes);
    Bytes output(ranks * bytes);
    for (const bool in_place : {false, true}) {
      std::byte* const own = output.data() + static_cast<std::uint64_t>(world.rank()) * bytes;
      group.expect("all_gather", bytes, comm::sent_bytes("all_gather", n, world.rank(), bytes),
                   [&](const std::string& tag) {
                     group
                         ->all_gather({.input = in_place ? own : input.data(),
                                       .output = output.data(),
                                       .count = count,
                                       .dtype = DType::f32,
                                       .tag = tag})
                         ->wait();
                   });
    }
    for (int root = 0; root < n; ++root) {
      group.expect("broadcast", bytes,
                   comm::sent_bytes("broadcast", n, world.rank(), bytes, root, group.shared()),
                   [&](const std::string& tag) {
                     group
                         ->broadcast({.data = input.data(),
                                      .count = count,
                                      .dtype = DType::f32,
                                      .root = root,
                                      .tag = tag})
                         ->wait();
                   });
    }
  }
  group.expect("barrier", 0, comm::sent_bytes("barrier", n, world.rank(), 0),
               [&](const std::string& tag) { group->barrier({.tag = tag}); });
}

void messages_send_their_bytes(comm::Communicator& world) {
  CountedGroup group(world);
  const int n = world.size();
  const auto part = [n](int from, int to) {
    return static_cast<std::uint64_t>((from + 2 * to) % (n + 1)) * 501;
  };
  std::vector<std::uint64_t> sends;
  std::vector<std::uint64_t> receives;
  std::uint64_t payload = 0;
  std::uint64_t received = 0;
  for (int peer = 0; peer < n; ++peer) {
    sends.push_back(part(world.rank(), peer));
    receives.push_back(part(peer, world.rank()));
    payload += sends.back();
    received += receives.back();
  }
  Bytes input(payload + 1);
  Bytes output(received + 1);
  group.expect("all_to_all", payload, comm::sent_bytes(world.rank(), sends),
               [&](const std::string& tag) {
                 group
                     ->all_to_all({.input = input.data(),
                                   .send_counts = sends,
                                   .output = output.data(),
                                   .receive_counts = receives,
                                   .dtype = DType::u8,
                                   .tag = tag})
                     ->wait();
               });
  const int next = (world.rank() + 1) % n;
  const int previous = (world.rank() + n - 1) % n;
  std::array<double, 100> out{};
  std::array<double, 100> in{};
  const std::array to{comm::Message{next, out.data(), 800}, comm::Message{next, nullptr, 0}};
  const std::array from{comm::Message{previous, in.data(), 800},
                        comm::Message{previous, nullptr, 0}};
  group.expect("exchange", 800, n == 1 ? 0 : 800, [&](const std::string& tag) {
    group->exchange({.sends = to, .receives = from, .tag = tag})->wait();
  });
}

/// Operations in flight together are counted separately, whichever wait completes them.
void purposes_are_counted_apart(comm::Communicator& world) {
  CountedGroup group(world);
  const int n = world.size();
  std::vector<float> grads(100003);
  std::vector<float> more(50021);
  std::vector<float> weights(30011);
  auto first = group->all_reduce(f32_sum(grads.data(), grads.data(), grads.size(), "grads 0"));
  auto second = group->all_reduce(f32_sum(more.data(), more.data(), more.size(), "loss"));
  auto third = group->broadcast({.data = weights.data(),
                                 .count = weights.size(),
                                 .dtype = DType::f32,
                                 .root = n - 1,
                                 .tag = "bf16"});
  third->wait();
  second->wait();
  first->wait();

  const auto rows = group->traffic();
  ASSERT_EQ(rows.size(), 3U);
  const std::array<std::string, 3> purposes{"grads", "loss", "bf16"};
  const std::array<std::uint64_t, 3> bytes{grads.size() * 4, more.size() * 4, weights.size() * 4};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].purpose, purposes[i]);
    EXPECT_EQ(rows[i].payload_bytes, bytes[i]);
    if (!group.counted()) continue;
    EXPECT_EQ(rows[i].moved_bytes, comm::sent_bytes(rows[i].operation, n, world.rank(), bytes[i],
                                                    n - 1, group.shared()));
  }
  EXPECT_TRUE(comm::traffic_between(rows, group->traffic()).empty());
  EXPECT_EQ(comm::total_traffic(rows, "all_reduce").payload_bytes, bytes[0] + bytes[1]);
}

/// Expects that the traffic of votes and measures grows with the logarithm of the number of ranks,
/// not with the number.
void few_bytes_need_few_messages(comm::Communicator& world) {
  CountedGroup group(world);
  if (!group.counted()) return;
  const auto rounds =
      static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(world.size()) - 1));
  EXPECT_EQ(
      group.messages_of([&] { comm::all_reduce_value(*group, 1.0, comm::ReduceOp::max, "vote"); }),
      rounds);
  std::vector<double> measures(50);
  std::vector<double> all(50 * static_cast<std::size_t>(world.size()));
  EXPECT_EQ(group.messages_of([&] {
    group
        ->all_gather({.input = measures.data(),
                      .output = all.data(),
                      .count = measures.size(),
                      .dtype = DType::f64})
        ->wait();
  }),
            rounds);
  EXPECT_EQ(group.messages_of([&] { group->barrier(); }), rounds);
  EXPECT_LE(group.messages_of([&] { comm::broadcast_value(*group, 1.0, 0, "step"); }), rounds);
}

constexpr std::array kTrafficCases{
    ConformanceCase{"ReductionsSendTheFormula", reductions_send_the_formula},
    ConformanceCase{"CopiesSendTheFormula", copies_send_the_formula},
    ConformanceCase{"MessagesSendTheirBytes", messages_send_their_bytes},
    ConformanceCase{"PurposesAreCountedApart", purposes_are_counted_apart},
    ConformanceCase{"FewBytesNeedFewMessages", few_bytes_need_few_messages},
};

}  // namespace

std::span<const ConformanceCase> traffic_cases() {
  return kTrafficCases;
}

}  // namespace trireme::testing
