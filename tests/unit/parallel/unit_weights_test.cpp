#include "parallel/units/unit_weights.hpp"

#include <gtest/gtest.h>

#include <array>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "comm/traffic.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/units/gathered.hpp"

namespace trireme::parallel {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kUnits = 5;
constexpr std::int64_t kBytesOfUnit = 128 * 4;

/// Units of 128 elements: rank r owns 64 elements of every unit u, with value 10 u + r.
void with_weights(const ParallelConfig& parallel,
                  const std::function<void(ParamRegistry&, comm::Communicator&)>& judge) {
  comm::run_ranks(kRanks, [&](comm::Communicator& world) {
    const Mesh mesh(world, parallel);
    ParamRegistry registry;
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      registry.begin_unit(std::to_string(unit));
      registry.declare({.name = "w" + std::to_string(unit), .shape = {128}});
    }
    registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      registry.master_part(unit).fill_(static_cast<double>(10 * unit) + world.rank());
    registry.refresh_weights();
    judge(registry, mesh.group(Axis::shard));
  });
}

void expect_whole(ParamRegistry& registry, std::size_t unit) {
  const at::Tensor weight = registry.weight(unit);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(weight.narrow(0, 64 * rank, 64)
                    .eq(static_cast<double>(10 * unit) + rank)
                    .all()
                    .item<bool>())
        << unit;
  }
}

std::size_t num_gathers(const comm::Communicator& group) {
  std::size_t count = 0;
  for (const comm::CommRecord& record : group.recent())
    if (record.operation == "all_gather") ++count;
  return count;
}

ParallelConfig zero(std::int64_t stage, bool reshard = true, std::int64_t prefetch = 1) {
  ParallelConfig config;
  config.zero = stage;
  config.zero_reshard = reshard;
  config.zero_prefetch = prefetch;
  return config;
}

TEST(UnitWeights, ArriveWholeAfterEachChange) {
  for (const std::int64_t stage : {1, 2, 3}) {
    with_weights(zero(stage), [](ParamRegistry& registry, comm::Communicator&) {
      for (std::size_t unit = 0; unit < kUnits; ++unit) expect_whole(registry, unit);
      for (std::size_t unit = 0; unit < kUnits; ++unit) registry.master_part(unit).add_(100.0);
      registry.refresh_weights();
      EXPECT_TRUE(registry.weight(2).ge(120.0).all().item<bool>());
    });
  }
}

/// Runs forward and backward over all units, like a model.
void walk(ParamRegistry& registry) {
  registry.weights().begin({0, 1, 2, 3, 4, 4, 3, 2, 1});
  for (const std::size_t unit : {0, 1, 2, 3, 4, 4, 3, 2, 1}) {
    const UnitUse use(registry.weights(), unit);
    expect_whole(registry, unit);
  }
}

TEST(UnitWeights, AreGatheredForEachUseAndKeptBetweenTwoOfTheSame) {
  for (const std::int64_t prefetch : {0, 1, 2}) {
    with_weights(zero(3, true, prefetch), [&](ParamRegistry& registry, comm::Communicator& group) {
      walk(registry);
      EXPECT_EQ(num_gathers(group), 8U) << "nine uses, the last unit's two at once";
      EXPECT_EQ(registry.weights().gathered_peak_bytes(), (1 + prefetch) * kBytesOfUnit);
    });
  }
}

TEST(UnitWeights, WithoutReshardingAreGatheredOnceAnUpdate) {
  with_weights(zero(3, false), [](ParamRegistry& registry, comm::Communicator& group) {
    walk(registry);
    walk(registry);
    EXPECT_EQ(num_gathers(group), kUnits);
    EXPECT_EQ(registry.weights().gathered_peak_bytes(),
              static_cast<std::int64_t>(kUnits) * kBytesOfUnit);
    registry.refresh_weights();
    walk(registry);
    EXPECT_EQ(num_gathers(group), 2 * kUnits);
  });
}

/// Weights of 128 elements, each with a norm of 16.
TEST(UnitWeights, SmallParametersStayWholeAndAreGatheredOnceAnUpdate) {
  for (const std::int64_t persist : {0, 16, 17, 1000}) {
    comm::run_ranks(kRanks, [&](comm::Communicator& world) {
      ParallelConfig config = zero(3);
      config.zero_persist = persist;
      const Mesh mesh(world, config);
      ParamRegistry registry;
      for (std::size_t unit = 0; unit < kUnits; ++unit) {
        registry.begin_unit(std::to_string(unit));
        registry.declare({.name = "n" + std::to_string(unit), .shape = {16}});
        registry.declare({.name = "w" + std::to_string(unit), .shape = {128}});
      }
      registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
      registry.initialize(7);
      const at::Tensor expected = gathered_weights(registry, world);
      comm::Communicator& group = mesh.group(Axis::shard);
      const auto payload = [&] { return comm::total_traffic(group.traffic(), "all_gather"); };
      const comm::TrafficRow before = payload();

      std::vector<std::size_t> order{0, 1, 2, 3, 4, 4, 3, 2, 1};
      registry.weights().begin(order);
      for (const std::size_t unit : order) {
        const UnitUse use(registry.weights(), unit);
        const auto begin = static_cast<std::int64_t>(unit) * 144;
        for (const auto& [id, at, count] : {std::array<std::int64_t, 3>{0, 0, 16}, {1, 16, 128}}) {
          const auto param = 2 * unit + static_cast<std::size_t>(id);
          EXPECT_TRUE(
              registry.weight(param).to(at::kDouble).equal(expected.narrow(0, begin + at, count)))
              << "persist " << persist << ", parameter " << param;
        }
      }

      // A norm takes a cache line, and a unit's size is a multiple of 64 for each rank.
      const std::uint64_t unit_bytes = persist > 128 ? 0 : persist > 16 ? 128 * 4 : 256 * 4;
      EXPECT_EQ(payload().payload_bytes - before.payload_bytes, 8 * unit_bytes / kRanks)
          << "persist " << persist;
      EXPECT_EQ(payload().count - before.count, persist > 128 ? 0U : 8U);
    });
  }
}

void declare_matrices(ParamRegistry& registry) {
  for (const int dim : {0, 1}) {
    registry.begin_unit(std::to_string(dim));
    registry.declare({.name = "matrix" + std::to_string(dim),
                      .shape = {6, 10},
                      .split = DimSplit{.dim = dim, .axis = Axis::tp}});
    registry.declare({.name = "norm" + std::to_string(dim), .shape = {10}});
  }
}

TEST(UnitWeights, WholeWeightsAreThoseOfOneRankOnEveryLayout) {
  for (const std::int64_t stage : {0, 1, 3}) {
    comm::run_ranks(4, [&](comm::Communicator& world) {
      ParallelConfig config = zero(stage);
      config.tp = 2;
      const Mesh mesh(world, config);
      ParamRegistry parts;
      declare_matrices(parts);
      parts.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
      parts.initialize(7);
      comm::SelfCommunicator self;
      const Mesh one(self, {});
      ParamRegistry expected;
      ParamRegistry whole;
      for (ParamRegistry* registry : {&expected, &whole}) {
        declare_matrices(*registry);
        registry->allocate(one, {at::kFloat, at::kFloat}, at::kCPU);
      }
      expected.initialize(7);

      copy_whole_weights(parts, whole);

      for (ParamId id = 0; id < whole.size(); ++id)
        EXPECT_TRUE(whole.main(id).equal(expected.main(id))) << "ZeRO-" << stage << ", " << id;
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
