#include "train/plan/plan_run.hpp"

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "train/config/open_values.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/cost/state_bytes.hpp"
#include "train/start/frozen_start.hpp"
#include "train/start/resolve_config.hpp"
#include "train/start/run_data.hpp"

namespace trireme::train {
namespace {

/// Returns the bytes of the models that a rank does not train: a frozen model, and the copy of the
/// whole model that generates answers.
double untrained_bytes(const Task& task, const RunConfig& config, const UpdateFacts& update) {
  double bytes = 0;
  for (const ModelBeside& beside : models_beside(task, config, /*copies=*/{})) {
    if (beside.kind == ModelBeside::Kind::frozen)
      bytes += weight_bytes(update, mean_elements(update, beside.count, beside.experts));
    if (beside.kind == ModelBeside::Kind::copy)
      bytes += config.model.num_parameters_wide() * static_cast<double>(update.compute_size());
  }
  return bytes;
}

void check_has_data(const RunConfig& config, const RunStart& start) {
  if (start.error) throw Error(*start.error);
  if (config.data.path.empty())
    fail(ErrorKind::usage,
         "--data is missing: give a token set (a directory that trireme-data pack wrote)");
}

RunData open_data(const Task& task, const RunConfig& config) {
  const std::vector<std::string_view> kinds = task.set_kinds();
  return RunData(config, kinds, [&](data::StreamConfig& stream, const data::EncodeWord& encode) {
    task.choose_data(stream, encode);
  });
}

}  // namespace

std::int64_t checkpoints_on_disk(const CheckpointConfig& config, std::int64_t steps) {
  const bool ends_apart = config.every == 0 || steps % config.every != 0;  // the last step
  const std::int64_t all = (config.every > 0 ? steps / config.every : 0) + (ends_apart ? 1 : 0);
  if (config.keep_last == 0) return all;
  const std::int64_t forever = config.keep_every > 0 ? steps / config.keep_every : 0;
  return std::min(all, config.keep_last + config.keep_best + 1 + forever);
}

void check_inputs(const Task& task, RunConfig& config, config::ConfigSet& keys,
                  const RunStart& start) {
  check_has_data(config, start);
  OpenValueFacts facts;
  if (start.kind == RunStart::Kind::resume_run) facts.saved = start.values.config;
  Problems ignored;  // the batch size depends on the number of ranks
  fill_open_values(config, facts, ignored);
  keys.finish();
  (void)open_data(task, config);
}

RunPlan plan_run(const Task& task, RunConfig& config, config::ConfigSet& keys,
                 const RunStart& start, int ranks, bool on_gpu) {
  check_has_data(config, start);
  if (!on_gpu && config.train.device == "cuda")
    fail(ErrorKind::usage, "train.device = cuda, but the nodes have no GPUs");
  Problems problems;
  OpenValueFacts facts;
  const bool divides_ranks = parallel::divides(config.parallel, ranks);
  if (divides_ranks) facts.data_ranks = parallel::data_ranks(config.parallel, ranks);
  facts.has_bf16 = on_gpu;
  if (start.kind == RunStart::Kind::resume_run) facts.saved = start.values.config;
  Problems ignored;
  fill_open_values(config, facts, divides_ranks ? problems : ignored);
  keys.finish();
  const RunData data = open_data(task, config);
  resolve_shape(config, keys, start, data, ranks, problems);
  task.check_files(config, data.sample_sets());
  (void)resolve_length(config, keys, start, data, task);
  RunPlan plan;
  if (start.kind == RunStart::Kind::resume_run) plan.steps_done = start.step();
  plan.steps = config.train.steps;
  UpdateFacts update = facts_of_run(config, ranks);
  update.reward_head = task.trains_reward_head();
  update.rows *= task.rows_per_sample();
  plan.memory_bytes_per_rank = static_cast<std::int64_t>(most_known_bytes(update));
  plan.checkpoint_bytes = checkpoint_bytes(update);
  if (task.critic()) {  // a model of the same shape, with the same optimizer
    plan.memory_bytes_per_rank *= 2;
    plan.checkpoint_bytes *= 2;
  }
  plan.memory_bytes_per_rank += static_cast<std::int64_t>(untrained_bytes(task, config, update));
  plan.disk_bytes = plan.checkpoint_bytes * checkpoints_on_disk(config.checkpoint, plan.steps);
  return plan;
}

}  // namespace trireme::train
