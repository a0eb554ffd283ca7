#include "train/verify/bench_ladder.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "comm/scalars.hpp"
#include "core/timer.hpp"
#include "device/kernel_choice.hpp"
#include "device/precision.hpp"
#include "ops/matmul.hpp"
#include "ops/operations.hpp"
#include "train/config/plain_ops.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::train {
namespace {

/// A rung, the model that it trains, and its results, one per measured round.
struct Trial {
  std::string off;
  std::vector<ops::Operation> plain;
  std::shared_ptr<TrialModel> model;
  bool deterministic = true;
  std::vector<double> step_s = {};
  std::vector<double> losses = {};
  std::vector<double> norms = {};
};

/// Returns true if the operation is part of the step and has a fast path on the device.
bool is_used(ops::Operation operation, const RunConfig& config, at::Device device) {
  if (operation == ops::Operation::dropout)
    return config.model.dropout > 0 || config.lora.dropout > 0;
  if (operation == ops::Operation::optimizer) return config.optim.name == "adamw";
  if (operation == ops::Operation::fp8 && config.train.fp8_mode() == model::Fp8Mode::off)
    return false;
  if (operation == ops::Operation::matmul) {
    const auto type = device::precision_dtypes(config.train.precision).compute;
    return ops::has_packed_matmul(at::empty({1}, at::dtype(type).device(device)));
  }
  const bool needs_gpu = operation == ops::Operation::embedding || operation == ops::Operation::fp8;
  return !needs_gpu || device.is_cuda();
}

std::vector<Trial> make_trials(comm::Communicator& world, const StepBench& bench) {
  const auto plain = plain_operations(bench.config.train);
  const auto model_of = [&](const parallel::ParallelConfig& parallel) {
    StepBench own = bench;
    own.config.parallel = parallel;
    // Every step changes the router bias by this rate, whatever the learning rate is.
    own.config.model.moe.router_bias_rate = 1e-30;
    return std::make_shared<TrialModel>(world, trial_shape(own));
  };
  const parallel::ParallelConfig& config = bench.config.parallel;
  const auto model = model_of(config);
  const bool deterministic = bench.config.train.deterministic;
  std::vector<Trial> trials{{"none", plain, model, deterministic}};
  for (std::size_t i = 0; i < ops::kOperations.size(); ++i) {
    const auto operation = static_cast<ops::Operation>(i);
    if (!is_used(operation, bench.config, bench.device) ||
        std::find(plain.begin(), plain.end(), operation) != plain.end())
      continue;
    std::vector<ops::Operation> more = plain;
    more.push_back(operation);
    trials.push_back({std::string(ops::kOperations.at(i)), more, model, deterministic});
  }
  const auto add = [&](const char* key, bool is_on, auto turn_off) {
    if (!is_on) return;
    parallel::ParallelConfig changed = config;
    turn_off(changed);
    trials.push_back({key, plain, model_of(changed), deterministic});
  };
  if (bench.device.is_cuda() && deterministic)  // kernels of a CPU are always deterministic
    trials.push_back({"train.deterministic", plain, model, /*deterministic=*/false});
  add("parallel.bucket_mb", parallel::data_ranks(config, world.size()) > 1 && config.bucket_mb != 0,
      [](auto& changed) { changed.bucket_mb = 0; });
  add("parallel.zero_prefetch", config.zero == 3 && config.zero_prefetch > 0,
      [](auto& changed) { changed.zero_prefetch = 0; });
  add("parallel.tp_chunks", config.tp_chunks > 1, [](auto& changed) { changed.tp_chunks = 1; });
  return trials;
}

double mean_loss(comm::Communicator& control, const parallel::Mesh& mesh, double loss_sum,
                 std::int64_t targets) {
  // The ranks of a tp or pp group have the same loss.
  const bool reports = mesh.rank(parallel::Axis::tp) == 0 && mesh.rank(parallel::Axis::pp) == 0;
  return comm::all_reduce_value(control, reports ? loss_sum : 0.0, comm::ReduceOp::sum, "loss") /
         static_cast<double>(std::max<std::int64_t>(targets, 1));
}

/// Runs a step of one rung and appends its results. Collective.
void run_rung(comm::Communicator& control, at::Device device, Trial& trial,
              const std::vector<data::Batch>& batches, std::int64_t step) {
  ops::compute_plainly(trial.plain);
  device::use_deterministic_kernels(device, trial.deterministic);
  const std::int64_t targets = count_targets(control, trial.model->mesh, batches);
  control.barrier();
  const Timer timer;
  const UpdateResult result = trial.model->step.run(batches, targets, step, step, /*lr=*/0);
  const double took_s = timer.seconds();  // complete: the norm has synchronized the device
  trial.step_s.push_back(comm::all_reduce_value(control, took_s, comm::ReduceOp::max, "step time"));
  trial.losses.push_back(mean_loss(control, trial.model->mesh, result.loss_sum, targets));
  trial.norms.push_back(result.grad_norm);
}

double largest_difference(const std::vector<double>& values, const std::vector<double>& base,
                          const std::vector<double>& unit) {
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    largest = std::max(largest, std::abs(values[i] - base[i]) / unit[i]);
  return largest;
}

}  // namespace

std::vector<LadderRung> measure_ladder(comm::Communicator& control, comm::Communicator& world,
                                       const StepBench& bench) {
  std::vector<Trial> trials = make_trials(world, bench);
  const parallel::Mesh& mesh = trials.front().model->mesh;
  for (std::int64_t round = 0; round <= bench.steps; ++round) {
    const std::vector<data::Batch> batches = bench_batches(bench, mesh, round);
    for (std::size_t i = 0; i < trials.size(); ++i) {
      Trial& trial = trials[(i + static_cast<std::size_t>(round)) % trials.size()];
      run_rung(control, bench.device, trial, batches, round + 1);
      if (round > 0) continue;
      trial.step_s.clear();  // warm-up
      trial.losses.clear();
      trial.norms.clear();
    }
  }
  ops::compute_plainly(trials.front().plain);
  device::use_deterministic_kernels(bench.device, trials.front().deterministic);
  std::vector<LadderRung> rungs;
  const Trial& base = trials.front();
  const std::vector<double> ones(base.losses.size(), 1.0);
  for (const Trial& trial : trials) {
    rungs.push_back({trial.off, median(trial.step_s), trial.losses.back(),
                     largest_difference(trial.losses, base.losses, ones),
                     largest_difference(trial.norms, base.norms, base.norms)});
  }
  return rungs;
}

}  // namespace trireme::train
