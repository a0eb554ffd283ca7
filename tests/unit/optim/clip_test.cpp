#include "optim/clip.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/thread/thread_world.hpp"

namespace trireme {
namespace {

TEST(Clip, NormIsThatOfAllGradients) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    run_ranks(1, [&](Communicator& world) {
      const Mesh mesh(world, {});
      ParamRegistry registry;
      registry.declare({.name = "a", .shape = {37}});
      registry.declare({.name = "b", .shape = {5, 11}});
      registry.allocate(mesh, {dtype, dtype}, at::kCPU);
      registry.begin_update(1);
      const at::Tensor a = at::linspace(-1, 2, 37, dtype);
      const at::Tensor b = at::linspace(3, -4, 55, dtype).view({5, 11});
      registry.add_gradient({0, 1}, a);
      registry.add_gradient({1, 1}, b);

      const double norm = global_norm(grad_squares(registry));

      const double expected = std::sqrt(a.to(at::kDouble).square().sum().item<double>() +
                                        b.to(at::kDouble).square().sum().item<double>());
      EXPECT_NEAR(norm, expected, 1e-12 * expected);  // fp64 sums in another order
    });
  }
}

TEST(Clip, NotFiniteGradientsGiveANotFiniteNorm) {
  run_ranks(1, [](Communicator& world) {
    const Mesh mesh(world, {});
    ParamRegistry registry;
    registry.declare({.name = "a", .shape = {37}});
    registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
    registry.main_grad(0)[36] = std::numeric_limits<float>::infinity();

    EXPECT_FALSE(std::isfinite(global_norm(grad_squares(registry))));
  });
}

TEST(Clip, FactorShrinksOnlyWhatIsTooLong) {
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace trireme
