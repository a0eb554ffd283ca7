/// Runs 8 of the layouts of integration/layouts_test on real ranks instead of threads: the first 3
/// of a covering set with 2 ranks, 2 of one with 3, and 3 of one with 4.

#include <ATen/Parallel.h>

#include <iostream>

#include "comm/factory.hpp"
#include "comm/self/self_communicator.hpp"
#include "mpi/launch_main.hpp"
#include "support/layouts/grid_cases.hpp"
#include "support/layouts/layout_cases.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

TEST(LayoutsOverMpi, EqualOneProcess) {
  at::set_num_threads(1);
  const auto world = comm::make_world("mpi", *g_launch);
  std::vector<LayoutCase> cases = all_layout_cases();
  std::erase_if(cases, [&](const LayoutCase& one) { return one.ranks() != world->size(); });
  cases = covering_set(cases);
  const std::size_t count = world->size() == 3 ? 2 : 3;
  ASSERT_GE(cases.size(), count);
  cases.resize(count);
  for (const LayoutCase& one : cases) {
    const train::TrialTrace trace = train::run_trial(*world, layout_plan(one));
    if (world->rank() != 0) continue;
    comm::SelfCommunicator alone;
    const train::LayoutComparison comparison =
        train::compare_trials(trace, train::run_trial(alone, one_process_plan(one)));
    EXPECT_TRUE(comparison.equal())
        << name_of(one) << ": gradients " << comparison.grad_rel << " (" << comparison.grad_worst
        << "), weights " << comparison.weight_rel;
    std::cout << name_of(one) << ": gradients " << comparison.grad_rel << '\n';
  }
}

TEST(GridsOverMpi, EqualOneProcess) {
  at::set_num_threads(1);
  const auto world = comm::make_world("mpi", *g_launch);
  std::vector<GridCase> cases = all_grid_cases();
  std::erase_if(cases, [&](const GridCase& one) { return one.ranks() != world->size(); });
  // The first of several cases with equal gain is chosen.
  std::ranges::stable_partition(cases, &GridCase::folds);
  if (cases.empty()) return;  // 3 ranks
  cases = covering_cases(cases);
  ASSERT_GE(cases.size(), 3U);
  cases.resize(3);
  for (const GridCase& one : cases) {
    const train::LayoutComparison comparison =
        train::verify_layout(*world, config_of(one), 2, at::kCPU);
    if (world->rank() != 0) continue;
    EXPECT_TRUE(comparison.equal()) << name_of(one) << ": gradients " << comparison.grad_rel;
    EXPECT_EQ(comparison.audit, "") << name_of(one);
  }
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  return trireme::testing::run_launched_tests(argc, argv);
}
