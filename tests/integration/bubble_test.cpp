/// Measures the idle time of the pipeline executor on ranks that sleep instead of computing. Label
/// slow: on a busy machine, the ranks' own computation takes too long compared to the sleep.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/thread/thread_world.hpp"
#include "core/timer.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "pipeline/named.hpp"
#include "pipeline/simulate.hpp"
#include "train/step/microbatches.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

/// Returns idle time over busy time of ranks that run a schedule. Each third of a stage's work
/// sleeps for `third`. A rank is busy if it does not wait for another rank.
double measured_bubble(std::string_view name, const pipeline::Shape& shape,
                       std::chrono::milliseconds third) {
  std::vector<double> busy_s(static_cast<std::size_t>(shape.ranks));
  double took_s = 0;
  comm::run_ranks(shape.ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    train::TrialShape trial_shape;
    trial_shape.parallel.pp = shape.ranks;
    trial_shape.parallel.schedule = name;
    trial_shape.parallel.virtual_stages = shape.virtual_stages;
    trial_shape.model = train::small_model_like(model::model_preset("tiny"), trial_shape.parallel);
    train::TrialModel trial(world, trial_shape);
    const pipeline::Schedule schedule =
        parallel::stage_schedule(trial_shape.parallel, shape.micro_batches);
    const auto& list = schedule.lists[static_cast<std::size_t>(world.rank())];
    parallel::StageP2P links(trial.mesh.group(parallel::Axis::pp), schedule.placement);
    train::StageExecutor passes(trial.model, trial.objective, links, world.rank());
    std::vector<parallel::Microbatch> batches;
    for (std::int64_t i = 0; i < shape.micro_batches; ++i)
      batches.push_back(train::to_microbatch(
          train::make_rows({i}, trial_shape.model.max_seq_len, trial_shape.model.vocab_size),
          at::kCPU, 1, true));
    trial.registry.on_ready([](parallel::ParamId) {});
    trial.registry.begin_update(shape.micro_batches);
    std::size_t pass = 0;
    const auto work = [&] {
      const int thirds = list[pass++].kind == pipeline::ActionKind::backward ? 2 : 1;
      std::this_thread::sleep_for(thirds * third);
    };
    train::ActivationCount none(trial.registry.weights(), false);
    at::Tensor loss = at::zeros({}, at::kDouble);
    const train::ActionHooks hooks{[](auto, auto) { return false; }, work, [&](bool) { work(); }};
    world.barrier();
    const Timer timer;
    passes.run(schedule, batches, 1, hooks, none, loss);
    busy_s[static_cast<std::size_t>(world.rank())] = timer.seconds() - links.waited_s();
    world.barrier();
    if (world.rank() == 0) took_s = timer.seconds();
  });
  return took_s * shape.ranks / std::accumulate(busy_s.begin(), busy_s.end(), 0.0) - 1;
}

// Sleeping ranks do not need a core each. Other load on this machine only adds idle time, so the
// smallest of a few results counts.
TEST(Bubble, IsThatOfTheFormula) {
  constexpr std::chrono::milliseconds kThird{60};
  constexpr int kTries = 3;
  std::map<std::string_view, double> bubbles;
  for (const std::string_view name : pipeline::kSchedules) {
    const pipeline::Shape shape{4, pipeline::stages_per_rank(name, name == "interleaved" ? 2 : 1),
                                8};
    const pipeline::Formula formula = pipeline::formula_of(name, shape);
    const double ideal = formula.exact ? formula.bubble
                                       : pipeline::simulate(pipeline::named_schedule(name, shape),
                                                            {{pipeline::ActionTimes{}}})
                                             .bubble;
    double least = measured_bubble(name, shape, kThird);
    for (int i = 1; i < kTries && least > ideal + 0.02; ++i)
      least = std::min(least, measured_bubble(name, shape, kThird));
    EXPECT_NEAR(least, ideal, 0.02) << name;
    std::cout << name << ": bubble " << least << ", formula " << ideal << '\n';
    bubbles[name] = least;
  }
  EXPECT_LE(bubbles["zb-h1"], 0.4 * bubbles["1f1b"]);
}

}  // namespace
}  // namespace trireme::testing
