#include "parallel/param_registry.hpp"

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "comm/traffic.hpp"
#include "core/error.hpp"
#include "device/memory_count.hpp"
#include "parallel/init_values.hpp"

namespace trireme::parallel {
namespace {

struct Fixture {
  explicit Fixture(comm::Communicator& world) : mesh(world, {}) {
    registry.declare({.name = "table", .shape = {5, 3}, .uses = 2});
    registry.declare({.name = "q", .shape = {4, 3}});
    registry.declare({.name = "k", .shape = {2, 3}, .fuse_with_previous = true});
    registry.declare({.name = "norm",
                      .shape = {3},
                      .init = {InitDistribution::Kind::ones, 1.0},
                      .decay = false});
  }

  Mesh mesh;
  ParamRegistry registry;
};

TEST(ParamRegistry, FusedWeightsAreOneViewOfTheSameStorage) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    Fixture f(world);
    f.registry.allocate(f.mesh, {at::kFloat, at::kFloat}, at::kCPU);
    f.registry.initialize(1);

    const at::Tensor fused = f.registry.weight(WeightRef{1, 2});

    EXPECT_EQ(fused.sizes(), (at::IntArrayRef{6, 3}));
    EXPECT_TRUE(fused.narrow(0, 4, 2).equal(f.registry.weight(2)));
    EXPECT_EQ(fused.data_ptr(), f.registry.main(1).data_ptr());
    EXPECT_TRUE(f.registry.main(3).equal(at::ones({3})));
  });
}

TEST(ParamRegistry, InitialValuesDependOnSeedNameAndIndexOnly) {
  const std::vector<std::int64_t> shape{6, 5};
  const std::vector<double> whole = normal_values(7, "w", shape, Slice::whole(shape));
  const Slice part{{2, 1}, {3, 3}, 1, 8};  // elements 1..7 of the rectangle's 9

  const std::vector<double> values = normal_values(7, "w", shape, part);

  ASSERT_EQ(values.size(), 7U);
  for (std::int64_t i = part.flat_begin; i < part.flat_end; ++i) {
    const std::int64_t global = (2 + i / 3) * 5 + 1 + i % 3;
    EXPECT_EQ(values[static_cast<std::size_t>(i - 1)], whole[static_cast<std::size_t>(global)])
        << i;
  }
  EXPECT_NE(normal_values(8, "w", shape, part), values);
  EXPECT_NE(normal_values(7, "v", shape, part), values);
}

TEST(ParamRegistry, NormalValuesHaveMeanZeroAndVarianceOne) {
  const std::vector<std::int64_t> shape{100000};

  const std::vector<double> values = normal_values(3, "w", shape, Slice::whole(shape));

  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.013);      // 4 standard errors of the mean
  EXPECT_NEAR(squares / 1e5, 1.0, 0.018);  // 4 standard errors of the variance
}

TEST(ParamRegistry, FiresReadyOnceAllUsesOfAllBackwardsAreIn) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    Fixture f(world);
    f.registry.allocate(f.mesh, {at::kBFloat16, at::kFloat}, at::kCPU);
    std::vector<ParamId> ready;
    f.registry.on_ready([&](ParamId id) { ready.push_back(id); });
    f.registry.begin_update(2);

    f.registry.add_gradient({0, 1}, at::ones({5, 3}));  // head, first micro-batch
    f.registry.add_gradient({1, 2}, at::ones({6, 3}));
    f.registry.add_gradient({0, 1}, at::ones({5, 3}));  // embedding, first micro-batch
    EXPECT_TRUE(ready.empty());
    f.registry.add_gradient({1, 2}, at::ones({6, 3}, at::kBFloat16));
    EXPECT_EQ(ready, (std::vector<ParamId>{2, 1}));
    f.registry.add_gradient({0, 1}, at::ones({5, 3}));
    f.registry.add_gradient({0, 1}, at::ones({5, 3}));

    EXPECT_EQ(ready, (std::vector<ParamId>{2, 1, 0}));
    EXPECT_TRUE(f.registry.master_grad(0).equal(at::full({5, 3}, 4.0F)));
    EXPECT_TRUE(f.registry.master_grad(2).equal(at::full({2, 3}, 2.0F)));
  });
}

TEST(ParamRegistry, WithoutBackwardAllAreReadyWithZeros) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    Fixture f(world);
    f.registry.allocate(f.mesh, {at::kFloat, at::kFloat}, at::kCPU);
    std::size_t ready = 0;
    f.registry.on_ready([&](ParamId) { ++ready; });

    f.registry.begin_update(0);

    EXPECT_EQ(ready, f.registry.size());
    EXPECT_EQ(f.registry.grad_part(0).abs().sum().item<double>(), 0.0);
  });
}

TEST(ParamRegistry, UniformValuesFillTheirRange) {
  const std::vector<std::int64_t> shape{100000};

  const std::vector<double> values = uniform_values(3, "w", shape, Slice::whole(shape));

  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    ASSERT_TRUE(value >= -1 && value < 1) << value;
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.0074);          // 4 standard errors of the mean
  EXPECT_NEAR(squares / 1e5, 1.0 / 3, 0.0038);  // 4 standard errors of the mean square
  EXPECT_EQ(uniform_values(3, "w", shape, Slice{{7}, {2}, 0, 2}),
            (std::vector<double>{values[7], values[8]}));
}

TEST(ParamRegistry, FrozenParametersHaveOnlyWeights) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    const Mesh mesh(world, {});
    ParamRegistry registry;
    registry.declare({.name = "base", .shape = {500, 3}, .frozen = true});
    registry.declare({.name = "beside", .shape = {4, 3}});
    const device::MemoryCount count;

    registry.allocate(mesh, {at::kBFloat16, at::kFloat}, at::kCPU);

    const std::int64_t base = 1536;  // elements, including padding
    const std::int64_t beside = 64;
    EXPECT_EQ(registry.layout().count(), base + beside);
    EXPECT_EQ(count.live_bytes(), 2 * base + beside * (2 + 4 + 4)) << "weights, main, gradients";
    EXPECT_EQ(registry.make_state().numel(), beside);
    registry.initialize(5);
    EXPECT_TRUE(registry.weight(ParamId{0}).equal(registry.main(0)));
    std::vector<ParamId> ready;
    registry.on_ready([&](ParamId id) { ready.push_back(id); });
    registry.begin_update(1);
    EXPECT_THROW(registry.add_gradient({0}, at::ones({500, 3})), Error) << "it has none";
    registry.add_gradient({1}, at::ones({4, 3}));
    EXPECT_EQ(ready, std::vector<ParamId>{1});
    registry.begin_update(0);
    EXPECT_EQ(ready, (std::vector<ParamId>{1, 1})) << "a rank without samples";
  });
}

TEST(ParamRegistry, AnUpdateGathersNoFrozenWeights) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    ParallelConfig parallel;
    parallel.zero = 1;
    const Mesh mesh(world, parallel);
    ParamRegistry registry;
    registry.declare({.name = "base", .shape = {256}, .frozen = true});
    registry.declare({.name = "beside", .shape = {128}});
    registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
    for (const std::size_t unit : {0, 1}) registry.master_part(unit).fill_(1.0 + world.rank());
    registry.refresh_weights();
    registry.weights().settle();
    const auto gathered = [&] {
      return comm::total_traffic(mesh.group(Axis::shard).traffic(), "all_gather").payload_bytes;
    };
    const std::uint64_t before = gathered();

    registry.refresh_trainable();
    registry.weights().settle();

    EXPECT_EQ(gathered() - before, 64U * 4U);
    EXPECT_EQ(registry.weight(ParamId{0}).sum().item<double>(), 128 + 2 * 128);
    EXPECT_EQ(registry.weight(ParamId{1}).sum().item<double>(), 64 + 2 * 64);
  });
}

}  // namespace
}  // namespace trireme::parallel
