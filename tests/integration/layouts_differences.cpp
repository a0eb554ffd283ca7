/// Compares the gradients of a layout with finite differences of its loss in fp64, independently of
/// any other program.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "support/layouts/layout_cases.hpp"
#include "support/rounding.hpp"

namespace trireme::testing {
namespace {

/// The differences use steps h and 2h and are exact up to h^4. The norms of heads with 4 elements
/// change within 1e-3. h = 2e-5 leaves an error below 1e-9 of that, and 1e-15 / h of rounding.
constexpr double kStep = 2e-5;
constexpr double kBound = 1e-8;

at::Tensor direction_of(const parallel::ParamRegistry& registry, parallel::ParamId id) {
  return at::randn(registry.spec(id).shape, at::detail::createCPUGenerator(5000 + id), at::kDouble);
}

/// Returns loss and gradients of one update at learned weights. Parameter `moved` is shifted by
/// `distance` along its direction.
train::TrialTrace trace_at(train::TrialPlan plan, int ranks, parallel::ParamId moved,
                           double distance) {
  plan.steps = 1;
  plan.lr = 0;
  plan.optim.clip_norm = 0;
  plan.model.moe.router_balance = "none";  // the reported loss does not include the balance loss
  plan.prepare = [=](parallel::ParamRegistry& registry) {
    set_weights(registry, [&](parallel::ParamId id) {
      const at::Tensor values = learned_values(registry, id).to(at::kDouble);
      if (moved != id) return values;
      return values + direction_of(registry, id) * distance;
    });
  };
  train::TrialTrace trace;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    const train::TrialTrace own = train::run_trial(world, plan);
    if (world.rank() == 0) trace = own;
  });
  return trace;
}

void expect_gradients_of_the_loss(const LayoutCase& one) {
  SCOPED_TRACE(name_of(one));
  const train::TrialPlan plan = layout_plan(one);
  const train::TrialTrace here = trace_at(plan, one.ranks(), 0, 0);
  const auto slope = [&](parallel::ParamId moved) {
    const auto loss = [&](double steps) {
      return trace_at(plan, one.ranks(), moved, steps * kStep).losses.front();
    };
    return (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * kStep);
  };
  for (parallel::ParamId id = 0; id < here.params.size(); ++id) {
    const at::Tensor grad = here.params[id].of(here.grads.front());
    const at::Tensor direction =
        at::randn({grad.numel()}, at::detail::createCPUGenerator(5000 + id), at::kDouble);
    const double along = grad.dot(direction).item<double>();
    const double size = root_of_squares({grad}) * root_of_squares({direction});
    EXPECT_NEAR(slope(id), along, kBound * size) << here.params[id].name;
  }
}

/// Returns a case with dp 2, tp 2 and cp 2, sequence parallelism and ZeRO-3.
LayoutCase case_with_head(bool tied, bool experts = false) {
  const std::vector<LayoutCase> cases = all_layout_cases();
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const LayoutCase& one) {
    return one.dp == 2 && one.tp == 2 && one.cp == 2 && one.zero == 3 && one.sequence &&
           one.accumulation == 1 && layout_plan(one).model.tie_embeddings == tied &&
           layout_plan(one).model.moe.on() == experts;
  });
  if (found == cases.end()) fail(ErrorKind::internal, "no case of 8 ranks, tied: {}", tied);
  return *found;
}

TEST(LayoutGradients, AreThoseOfTheLossWithATiedHead) {
  expect_gradients_of_the_loss(case_with_head(/*tied=*/true));
}

TEST(LayoutGradients, AreThoseOfTheLossWithItsOwnHead) {
  expect_gradients_of_the_loss(case_with_head(/*tied=*/false));
}

TEST(LayoutGradients, AreThoseOfTheLossWithExperts) {
  expect_gradients_of_the_loss(case_with_head(/*tied=*/false, /*experts=*/true));
}

}  // namespace
}  // namespace trireme::testing
