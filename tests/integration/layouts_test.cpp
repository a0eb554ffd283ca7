/// Every layout trains like one process in fp64: losses, norms, every gathered gradient, weights
/// and optimizer state of 3 updates. Runs a covering set by default (every pair of values of two
/// factors), and with TRIREME_TEST_MATRIX=K/N part K of N of all layouts (label
/// matrix), each with one of two optimizers.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "support/layouts/layout_cases.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

/// The largest distance of all cases and the name of its case.
struct Worst {
  double distance = -1;
  std::string where = "none";

  void keep(double other, const std::string& name) {
    if (other <= distance) return;
    distance = other;
    where = name;
  }
};

class LayoutsAndOneProcess {
 public:
  void compare(const LayoutCase& one) {
    const train::TrialTrace& expected = one_process(one);
    train::TrialPlan plan = layout_plan(one);
    plan.audit =
        layout_settings_of(one).rows != RowKind::uneven;  // the formulas assume equal micro-batches
    comm::run_ranks(one.ranks(), [&](comm::Communicator& world) {
      at::set_num_threads(1);
      const train::TrialTrace trace = train::run_trial(world, plan);
      if (world.rank() != 0) return;
      EXPECT_EQ(trace.audit, "") << name_of(one);
      const train::LayoutComparison comparison = train::compare_trials(trace, expected);
      EXPECT_TRUE(comparison.equal())
          << name_of(one) << ": loss " << comparison.loss_rel << ", gradients "
          << comparison.grad_rel << " (" << comparison.grad_worst << "), norm "
          << comparison.norm_rel << ", weights " << comparison.weight_rel << ", moments "
          << comparison.moment_rel;
      worst_["loss"].keep(comparison.loss_rel, name_of(one));
      worst_["gradient"].keep(comparison.grad_rel, comparison.grad_worst + ", " + name_of(one));
      worst_["norm"].keep(comparison.norm_rel, name_of(one));
      worst_["weight"].keep(comparison.weight_rel, name_of(one));
      worst_["moment"].keep(comparison.moment_rel, name_of(one));
    });
  }

  void print() const {
    for (const auto& [what, worst] : worst_)
      std::cout << "largest distance of a " << what << ": " << worst.distance << " (" << worst.where
                << ")\n";
    std::cout << one_process_.size() << " trainings on one process\n";
  }

 private:
  const train::TrialTrace& one_process(const LayoutCase& one) {
    const std::string key = one_process_key(one);
    const auto found = one_process_.find(key);
    if (found != one_process_.end()) return found->second;
    at::set_num_threads(1);
    comm::SelfCommunicator alone;
    return one_process_.emplace(key, train::run_trial(alone, one_process_plan(one))).first->second;
  }

  std::map<std::string, train::TrialTrace> one_process_;
  std::map<std::string, Worst> worst_;
};

TEST(Layouts, AreAsManyAsCounted) {
  const std::vector<LayoutCase> cases = all_layout_cases();
  std::set<std::array<std::int64_t, 3>> factorizations;
  for (const LayoutCase& one : cases) factorizations.insert({one.dp, one.tp, one.cp});

  EXPECT_EQ(factorizations.size(), 32U);
  EXPECT_EQ(cases.size(), 2U * 2010U);  // each layout with clipped SGD and with AdamW
  EXPECT_EQ(with_one_optimizer(cases).size(), 2010U);
}

TEST(Layouts, InTheCoveringSetHaveEverySetting) {
  std::set<std::size_t> shapes;
  std::set<RowKind> rows;
  std::set<bool> by_work;
  std::set<std::int64_t> shards;
  std::set<std::int64_t> persists;
  std::set<bool> hierarchical;
  std::set<bool> offload;
  std::set<std::pair<bool, std::int64_t>> chunks;  // (sequence parallelism, chunks)
  for (const LayoutCase& one : covering_set(all_layout_cases())) {
    const LayoutSettings turns = layout_settings_of(one);
    shapes.insert(turns.shape);
    rows.insert(turns.rows);
    by_work.insert(turns.by_work);
    shards.insert(turns.zero_shard);
    persists.insert(turns.zero_persist);
    hierarchical.insert(turns.hierarchical);
    offload.insert(turns.offload);
    if (one.tp > 1) chunks.insert({one.sequence, turns.tp_chunks});
  }

  EXPECT_EQ(shapes.size(), kNumShapes);
  EXPECT_EQ(rows.size(), kRowKindNames.size());
  EXPECT_EQ(by_work.size(), 2U);
  EXPECT_EQ(persists.size(), 2U);
  EXPECT_EQ(hierarchical.size(), 2U);
  EXPECT_EQ(offload.size(), 2U);
  EXPECT_EQ(chunks.size(), 2U * 4U);
  EXPECT_EQ(shards, (std::set<std::int64_t>{0, 2, 3, 4}));
}

TEST(Layouts, CountUnitsThatWaitForTheirSumsAcrossPasses) {
  // The last unit of a backward pass still waits for its sum when the next backward pass begins.
  // With an untied head, this is the peak.
  train::RunConfig untied;
  untied.model = model::model_preset("minimind-2");
  untied.parallel.reproducible = true;
  untied.train.accumulation = 3;
  train::RunConfig small = untied;  // all parameters are in the unit of small parameters
  small.model = model::model_preset("tiny");
  small.parallel.zero = 3;
  small.parallel.zero_persist = 1000000;
  train::RunConfig some = small;
  some.parallel.reproducible = false;
  some.parallel.zero_persist = 500;
  for (const train::RunConfig& config : {untied, small, some}) {
    for (const int ranks : {1, 2}) {
      comm::run_ranks(ranks, [&](comm::Communicator& world) {
        const train::LayoutComparison comparison = train::verify_layout(world, config, 1, at::kCPU);
        if (world.rank() == 0) {
          EXPECT_EQ(comparison.audit, "") << ranks << ", " << config.parallel.zero_persist;
        }
      });
    }
  }
}

TEST(Layouts, EqualOneProcess) {
  const std::vector<LayoutCase> all = all_layout_cases();
  const std::vector<LayoutCase> cases =
      cases_of_this_run(covering_set(all), with_one_optimizer(all));
  LayoutsAndOneProcess layouts;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    layouts.compare(cases[i]);
    if ((i + 1) % 100 == 0) std::cout << i + 1 << " of " << cases.size() << " runs" << std::endl;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  std::cout << cases.size() << " runs in " << spent.count() << " s\n";
  layouts.print();
}

TEST(Layouts, OfWholeMatricesEqualOneProcess) {
  const std::vector<LayoutCase> all = all_layout_cases();
  const std::vector<LayoutCase> covering = covering_set(all);
  const std::vector<LayoutCase> cases =
      with_muon(cases_of_this_run(each_value_once(all), covering));
  LayoutsAndOneProcess layouts;
  for (const LayoutCase& one : cases) layouts.compare(one);
  std::cout << cases.size() << " runs\n";
  layouts.print();
  // a part of the matrix may have none of these layouts
  EXPECT_TRUE(cases.size() > 3 || std::getenv("TRIREME_TEST_MATRIX") != nullptr);
}

TEST(Layouts, WithAdaptersOnFrozenWeightsEqualOneProcess) {
  const std::vector<LayoutCase> all = all_layout_cases();
  const std::vector<LayoutCase> cases =
      with_adapters(cases_of_this_run(each_value_once(all), covering_set(all)));
  std::set<std::string> targets;
  std::set<double> dropouts;
  LayoutsAndOneProcess layouts;
  for (const LayoutCase& one : cases) {
    layouts.compare(one);
    targets.insert(layout_settings_of(one).adapters.targets);
    dropouts.insert(layout_settings_of(one).adapters.dropout);
  }
  std::cout << cases.size() << " runs\n";
  layouts.print();
  if (is_matrix_run()) return;  // a part of the matrix need not have all of them
  EXPECT_EQ(targets.size(), 3U);
  EXPECT_EQ(dropouts.size(), 2U);
}

}  // namespace
}  // namespace trireme::testing
