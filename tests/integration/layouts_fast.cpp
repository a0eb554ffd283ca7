/// Compares the layouts in fp32 and bf16 on the fast kernels with one process of the same
/// precision: losses, norms and gradients at fixed weights. By default each value of each factor
/// occurs once; the matrix runs the covering set.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "support/layouts/layout_cases.hpp"
#include "support/rounding.hpp"

namespace trireme::testing {
namespace {

/// Returns the bound for the distance between a layout and one process. Both differ from the exact
/// result by their rounding errors. A layout rounds once more where it shards, independently, so
/// all squares add:
///   tp   in every block two sums of partial results forward and two backward, and one each in
///        embedding and head; every partial result and every sum is rounded
///   cp   in every block, cp partial results of attention and of its three gradients are added
///   dp   the gradients of ranks and of micro-batches are added once
double bound_of(const LayoutCase& one, const train::TrialPlan& plan, const Precision& precision) {
  const auto layers = static_cast<double>(plan.model.num_layers);
  double roundings = 2 * num_roundings(plan.model.num_layers);
  if (one.tp > 1) roundings += 2 * (4 * layers + 2);
  if (one.cp > 1) roundings += 4 * layers * static_cast<double>(one.cp);
  roundings += static_cast<double>(one.dp + one.accumulation);
  return rounding_error(roundings, plan.model.hidden_size, precision);
}

double distance(const std::vector<double>& values, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(values[i] / expected[i] - 1));
  return worst;
}

train::TrialPlan in_precision(train::TrialPlan plan, const Precision& precision) {
  plan.dtypes = precision.dtypes;
  plan.path = ops::Path::fast;
  plan.lr = 0;  // gradients of several updates at the same weights
  // If two scores differ by less than rounding, a layout may choose another expert, which changes
  // everything. So all experts are chosen.
  plan.model.moe.num_experts_per_tok = plan.model.moe.num_experts;
  return plan;
}

/// Returns the largest distance divided by the bound.
double expect_within_rounding(const LayoutCase& one, const Precision& precision) {
  comm::SelfCommunicator alone;
  at::set_num_threads(1);
  train::TrialPlan plan = in_precision(layout_plan(one), precision);
  // Includes the activations that fused kernels save.
  plan.audit = layout_settings_of(one).rows != RowKind::uneven;
  const train::TrialTrace expected =
      train::run_trial(alone, in_precision(one_process_plan(one), precision));
  const double bound = bound_of(one, plan, precision);
  double worst = 0;
  comm::run_ranks(one.ranks(), [&](comm::Communicator& world) {
    at::set_num_threads(1);
    const train::TrialTrace trace = train::run_trial(world, plan);
    if (world.rank() != 0) return;
    EXPECT_EQ(trace.audit, "") << name_of(one);
    const auto expect = [&](double distance, const std::string& what) {
      EXPECT_LE(distance, bound) << precision.name << ", " << what << ", " << name_of(one);
      worst = std::max(worst, distance / bound);
    };
    expect(distance(trace.losses, expected.losses), "loss");
    expect(distance(trace.norms, expected.norms), "norm");
    for (const parallel::GatheredParam& param : expected.params) {
      std::vector<at::Tensor> apart;
      std::vector<at::Tensor> whole;
      for (std::size_t i = 0; i < expected.grads.size(); ++i) {
        whole.push_back(param.of(expected.grads[i]));
        apart.push_back(param.of(trace.grads[i]) - whole.back());
      }
      const double size = root_of_squares(whole);
      // Both are zero for a frozen parameter, or for experts with equal loads.
      if (size == 0 && root_of_squares(apart) == 0) continue;
      expect(root_of_squares(apart) / size, "gradient of " + param.name);
    }
  });
  return worst;
}

TEST(FastLayouts, AreWithinRoundingOfOneProcess) {
  const std::vector<LayoutCase> all = all_layout_cases();
  std::vector<LayoutCase> cases = cases_of_this_run(each_value_once(all), covering_set(all));
  const std::vector<LayoutCase> adapted = with_adapters(cases);
  cases.insert(cases.end(), adapted.begin(), adapted.end());
  for (const Precision& precision : {kFp32, kBf16}) {
    double worst = 0;
    for (const LayoutCase& one : cases)
      worst = std::max(worst, expect_within_rounding(one, precision));
    std::cout << precision.name << ": " << cases.size()
              << " cases, largest distance over its bound: " << worst << '\n';
  }
}

}  // namespace
}  // namespace trireme::testing
