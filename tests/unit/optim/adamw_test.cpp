#include "optim/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/thread/thread_world.hpp"

namespace trireme::optim {
namespace {

/// Computes the update of one scalar by the paper's algorithm 2 (decoupled decay).
struct ScalarAdamW {
  double weight, first = 0, second = 0;

  void step(int t, double grad, double lr, const AdamWConfig& c, double decay) {
    weight -= lr * decay * weight;
    first = c.beta1 * first + (1 - c.beta1) * grad;
    second = c.beta2 * second + (1 - c.beta2) * grad * grad;
    const double m = first / (1 - std::pow(c.beta1, t));
    const double v = second / (1 - std::pow(c.beta2, t));
    weight -= lr * m / (std::sqrt(v) + c.eps);
  }
};

TEST(AdamW, FollowsTheReferenceWithDecayOnMatricesOnly) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    const AdamWConfig config;
    parallel::ParamRegistry registry;
    registry.declare({.name = "matrix", .shape = {3}});
    registry.declare({.name = "norm", .shape = {3}, .decay = false});
    registry.declare({.name = "matrix2", .shape = {3}});
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    registry.master_part(0).fill_(0.5);
    const auto optimizer = make_optimizer({}, registry);
    ScalarAdamW matrix{0.5};
    ScalarAdamW norm{0.5};

    for (int t = 1; t <= 5; ++t) {
      const double grad = std::sin(t);
      registry.grad_part(0).fill_(grad);
      optimizer->step(t, 0.01);
      matrix.step(t, grad, 0.01, config, 0.1);
      norm.step(t, grad, 0.01, config, 0.0);
    }

    for (const parallel::ParamId id : {parallel::ParamId{0}, parallel::ParamId{2}})
      EXPECT_NEAR(registry.main(id)[1].item<double>(), matrix.weight, 1e-12);
    EXPECT_NEAR(registry.main(1)[1].item<double>(), norm.weight, 1e-12);
    EXPECT_NEAR(optimizer->slots()[1].flat[2].item<double>(), matrix.second, 1e-15);
  });
}

}  // namespace
}  // namespace trireme::optim
