#include "parallel/param_registry.hpp"

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "parallel/init_values.hpp"

namespace trireme {
namespace {

struct Fixture {
  explicit Fixture(Communicator& world) : mesh(world, {}) {
    registry.declare({.name = "table", .shape = {5, 3}, .uses = 2});
    registry.declare({.name = "q", .shape = {4, 3}});
    registry.declare({.name = "k", .shape = {2, 3}, .fuse_with_previous = true});
    registry.declare(
        {.name = "norm", .shape = {3}, .init = {InitLaw::Kind::ones, 1.0}, .decay = false});
  }

  Mesh mesh;
  ParamRegistry registry;
};

TEST(ParamRegistry, FusedWeightsAreOneViewOfTheSameStorage) {
  run_ranks(1, [](Communicator& world) {
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
  run_ranks(1, [](Communicator& world) {
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
    EXPECT_TRUE(f.registry.main_grad(0).equal(at::full({5, 3}, 4.0F)));
    EXPECT_TRUE(f.registry.main_grad(2).equal(at::full({2, 3}, 2.0F)));
  });
}

TEST(ParamRegistry, WithoutBackwardAllAreReadyWithZeros) {
  run_ranks(1, [](Communicator& world) {
    Fixture f(world);
    f.registry.allocate(f.mesh, {at::kFloat, at::kFloat}, at::kCPU);
    std::size_t ready = 0;
    f.registry.on_ready([&](ParamId) { ++ready; });

    f.registry.begin_update(0);

    EXPECT_EQ(ready, f.registry.size());
    EXPECT_EQ(f.registry.grad_part(0).abs().sum().item<double>(), 0.0);
  });
}

}  // namespace
}  // namespace trireme
