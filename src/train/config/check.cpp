#include <string>
#include <vector>

#include "core/join.hpp"
#include "core/problems.hpp"
#include "core/process/max_threads.hpp"
#include "ops/operations.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/config/config.hpp"
#include "train/config/plain_ops.hpp"
#include "train/config/profile_request.hpp"
#include "train/config/window_schedule.hpp"

namespace trireme::train {
namespace {

/// Upper limit that keeps ranks x micro_batch x accumulation within 64 bits.
constexpr std::int64_t kMostSequences = std::int64_t{1} << 20;

void check_train(const TrainConfig& train, Problems& problems) {
  const auto at_least = [&](const char* key, std::int64_t value, std::int64_t low,
                            const char* allowed) {
    if (value < low) problems.add(key, value, allowed);
  };
  at_least("train.steps", train.steps, 0, "must be 0 (use epochs) or more");
  at_least("train.seq_len", train.seq_len, 0, "must be 0 (length of the data set) or more");
  const auto within = [&](const char* key, std::int64_t value, std::int64_t low,
                          std::int64_t high) {
    if (value < low || value > high)
      problems.add(key, value, formatted("must be in [{}, {}]", low, high));
  };
  within("train.micro_batch", train.micro_batch, 1, kMostSequences);
  within("train.global_batch", train.global_batch, 0, kMostSequences * kMostSequences);
  within("train.accumulation", train.accumulation, 0, kMostSequences);
  within("train.threads", train.threads, 0, kMaxThreads);
  at_least("train.seed", train.seed, 0, "must be 0 or more");
  at_least("train.log_every", train.log_every, 0, "must be 0 (no progress line) or more");
  at_least("train.metrics_every", train.metrics_every, 1, "must be 1 or more");
  at_least("train.eval_every", train.eval_every, 0, "must be 0 (no validation) or more");
  at_least("train.patience", train.patience, 0, "must be 0 (no early stop) or more");
  if (train.patience > 0 && train.eval_every == 0)
    problems.add("train.patience", train.patience, "needs validations: set train.eval_every");
  if (!(train.ema_decay >= 0 && train.ema_decay < 1))
    problems.add("train.ema_decay", train.ema_decay, "must be in [0, 1)");
  if (train.eval_ema && train.ema_decay == 0)
    problems.add("train.eval_ema", train.eval_ema, "needs train.ema_decay");
  at_least("train.max_skipped_steps", train.max_skipped_steps, 0, "must be 0 (none) or more");
  at_least("train.hash_weights_every", train.hash_weights_every, 0, "must be 0 (none) or more");
  at_least("train.num_samples", train.num_samples, 0, "must be 0 (from epochs or steps) or more");
  constexpr double kMostTokensPerParam = 1e9;
  if (!(train.tokens_per_param >= 0 && train.tokens_per_param <= kMostTokensPerParam))
    problems.add("train.tokens_per_param", train.tokens_per_param, "must be in [0, 1e9]");
  if (train.tokens_per_param > 0 && train.steps == 0 && train.num_samples > 0)
    problems.add("train.tokens_per_param", train.tokens_per_param,
                 "cannot be combined with train.num_samples");
  if (!(train.epochs > 0)) problems.add("train.epochs", train.epochs, "must be more than 0");
  if (!(train.comm_timeout_s > 0))
    problems.add("train.comm_timeout_s", train.comm_timeout_s, "must be more than 0");
  if (!(train.start_timeout_s > 0))
    problems.add("train.start_timeout_s", train.start_timeout_s, "must be more than 0");
  problems.one_of("train.precision", train.precision,
                  std::vector<std::string>{"auto", "fp32", "bf16", "fp16", "fp64"});
  problems.one_of("train.fp8", train.fp8,
                  std::vector<std::string>(model::kFp8Modes.begin(), model::kFp8Modes.end()));
  const std::vector<std::string> operations(ops::kOperations.begin(), ops::kOperations.end());
  for (const std::string& name : plain_op_names(train.plain_ops))
    problems.one_of("train.plain_ops", name, operations);
  const std::vector<std::string> choices{"auto", "true", "false"};
  problems.one_of("train.late_results", train.late_results, choices);
  problems.one_of("train.cuda_graph", train.cuda_graph, choices);
  problems.one_of("train.device", train.device, std::vector<std::string>{"auto", "cpu", "cuda"});
}

void check_profile(const std::string& profile, Problems& problems) {
  if (profile.empty()) return;
  try {
    if (parse_profile(profile).first_step == 0)
      problems.add("train.profile", profile, "must name steps, such as steps=10:13,ranks=0");
  } catch (const Error& error) {
    problems.add("train.profile", profile, cat("is not valid: ", error.what()));
  }
}

void check_data(const DataConfig& data, Problems& problems) {
  problems.one_of("data.packing", data.packing, std::vector<std::string>{"best-fit", "concat"});
  problems.one_of("data.blend_rule", data.blend_rule,
                  std::vector<std::string>{"table", "megatron"});
  problems.one_of("data.valid_part", data.valid_part, std::vector<std::string>{"valid", "test"});
  if (data.valid_tokens < 0)
    problems.add("data.valid_tokens", data.valid_tokens, "must be 0 (all tokens) or more");
  if (data.cross_documents && data.packing != "concat")
    problems.add("data.cross_documents", data.cross_documents, "needs data.packing = concat");
  if (data.shuffle_block < 0 || data.shuffle_block > std::int64_t{1} << 32)
    problems.add("data.shuffle_block", data.shuffle_block, "must be in [0, 4294967296]");
  if (!data.split.empty() && !data.valid_path.empty())
    problems.add("data.split", data.split, "cannot be combined with data.valid_path");
}

void check_batch_phases(const RunConfig& config, Problems& problems) {
  const std::string& given = config.data.batch_phases;
  if (given.empty()) return;
  if (config.train.tokens_per_param > 0 && config.train.steps == 0)
    problems.add("train.tokens_per_param", config.train.tokens_per_param,
                 "cannot be combined with data.batch_phases: set train.steps");
  try {
    const data::BatchPhases phases(given);
    const std::int64_t first = phases.global_batch(1);
    if (config.train.global_batch != 0 && config.train.global_batch != first)
      problems.add("train.global_batch", config.train.global_batch,
                   formatted("must be {}, the first size of data.batch_phases", first));
    if (config.train.accumulation != 0)
      problems.add("train.accumulation", config.train.accumulation,
                   "cannot be combined with data.batch_phases");
    if (parallel::searches_schedule(config.parallel))
      problems.add("data.batch_phases", given, "cannot be combined with parallel.schedule = auto");
  } catch (const Error& error) {
    problems.add("data.batch_phases", given, error.what());
  }
}

void check_window_schedule(const TrainConfig& train, Problems& problems) {
  const std::string& given = train.window_schedule;
  try {
    static_cast<void>(WindowSchedule(given));
  } catch (const Error& error) {
    problems.add("train.window_schedule", given, error.what());
  }
}

void check_checkpoint(const CheckpointConfig& config, std::int64_t eval_every, Problems& problems) {
  const auto not_negative = [&](const char* key, auto value, const char* allowed) {
    if (!(value >= 0)) problems.add(cat("checkpoint.", key), value, allowed);
  };
  if (config.resume.empty())
    problems.add("checkpoint.resume", "''", "must be auto, never or the path of a checkpoint");
  not_negative("every", config.every, "must be 0 (last step only) or more");
  not_negative("keep_every", config.keep_every, "must be 0 (none) or more");
  not_negative("keep_best", config.keep_best, "must be 0 (none) or more");
  if (config.keep_best > 0 && eval_every == 0)
    problems.add("checkpoint.keep_best", config.keep_best,
                 "needs validations: set train.eval_every, or set it to 0");
  not_negative("write_mb_per_s", config.write_mb_per_s, "must be 0 (automatic) or more");
  problems.one_of("checkpoint.start", config.start, std::vector<std::string>{"state", "weights"});
  not_negative("keep_last", config.keep_last, "must be 0 (keep all) or more");
}

void check_metrics(const RunConfig& config, Problems& problems) {
  const std::int64_t every = config.train.metrics_every;
  const std::int64_t layer_norms = config.metrics.layer_norms;
  if (layer_norms < 0 || (every > 0 && layer_norms % every != 0))
    problems.add("metrics.layer_norms", layer_norms,
                 formatted("must be 0 (never) or a multiple of train.metrics_every = {}", every));
  if (!config.metrics.samples.empty() && config.train.eval_every == 0)
    problems.add(
        "metrics.samples", config.metrics.samples,
        "must be empty without train.eval_every, because each validation generates the samples");
  if (config.metrics.sample_tokens < 1)
    problems.add("metrics.sample_tokens", config.metrics.sample_tokens, "must be 1 or more");
}

}  // namespace

void check(const RunConfig& config, Problems& problems) {
  check(config.model, problems);
  check_train(config.train, problems);
  if (config.parallel.reproducible && !config.train.deterministic)
    problems.add("train.deterministic", false, "must be true with parallel.reproducible = true");
  check_profile(config.train.profile, problems);
  check(config.optim, problems);
  check(config.parallel, problems);
  check(config.lora, problems);
  check_data(config.data, problems);
  check_batch_phases(config, problems);
  check_window_schedule(config.train, problems);
  if (config.train.ema_decay > 0 && config.parallel.local_steps > 1)
    problems.add("train.ema_decay", config.train.ema_decay,
                 "cannot be combined with parallel.local_steps of more than 1");
  check_checkpoint(config.checkpoint, config.train.eval_every, problems);
  check_metrics(config, problems);
}

}  // namespace trireme::train
