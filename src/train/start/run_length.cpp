#include "train/start/run_length.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "core/format_count.hpp"
#include "core/number.hpp"
#include "train/start/resolve_config.hpp"

namespace trireme::train {
namespace {

/// The position of the run before its first update.
struct Position {
  std::int64_t step = 0;
  std::int64_t next_sample = 0;
  std::int64_t steps_in_batch = 0;  // Task::steps_in_batch
};

Position position_of(const RunConfig& config, const RunStart& start, const config::ConfigSet& keys,
                     const data::SampleStream& stream, const Task& task) {
  if (start.kind != RunStart::Kind::state && start.kind != RunStart::Kind::resume_run) return {};
  const bool other = start.kind == RunStart::Kind::state &&
                     !data_mismatch(keys, stream, start.values, start.checkpoint).empty();
  if (other) return {start.step()};
  return {start.step(), saved_next_sample(start.values), task.steps_in_batch(config, start.values)};
}

/// Returns a warning if all epochs hold fewer samples than one update; "" otherwise. `num_samples`:
/// samples of all requested epochs. `done`: samples that the run has already trained on.
std::string small_run_warning(const TrainConfig& train, std::int64_t num_samples,
                              std::int64_t done) {
  const std::int64_t left = num_samples - done;
  if (num_samples >= train.global_batch || left <= 0) return "";
  return formatted(
      "an update has {} samples (train.global_batch), but train.epochs = {} gives only {} in total{}: the run has one {}update with {}{}",
      train.global_batch, number_text(train.epochs), num_samples,
      done > 0 ? formatted(", and {} of them are done", done) : "", done > 0 ? "more " : "", left,
      left > 1 ? ". A smaller train.global_batch makes more updates" : "");
}

/// Throws Error(usage) if a phase begins inside an update: an update needs samples of one length.
void check_phases(const data::SampleStream& stream, std::int64_t next_sample,
                  std::int64_t global_batch) {
  const auto step = stream.cut_update(next_sample, global_batch);
  if (!step) return;
  fail(
      ErrorKind::usage,
      "data.path changes the sequence length at step {}, inside an update: the run is at sample {}, and updates of {} samples (train.global_batch) from there do not end at the change. Give all phases one length, or start a new run from the weights (--init and another --run)",
      *step, next_sample, global_batch);
}

}  // namespace

RunLength run_length(const RunConfig& config, const RunStart& start, const config::ConfigSet& keys,
                     const RunData& data, const Task& task) {
  const TrainConfig& train = config.train;
  const std::int64_t steps_per_batch = task.steps_per_batch(config);
  RunLength length{train.steps, train.num_samples, ""};
  const Position position = position_of(config, start, keys, data.stream(), task);
  check_phases(data.stream(), position.next_sample, train.global_batch);
  if (train.steps == 0) {
    if (const auto steps = steps_of_tokens(config)) return {*steps, 0, ""};
  }
  const bool is_open = train.steps == 0;
  if (is_open && train.num_samples == 0) {
    length.num_samples = data.samples_of_epochs(train.epochs);
    length.warning = small_run_warning(train, length.num_samples, position.next_sample);
  }
  if (length.num_samples == 0) return length;
  // Inside a rollout, next_sample is still the first sample of the rollout. If rollouts end early,
  // the samples may be used up before the run ends.
  std::int64_t left = length.num_samples - position.next_sample;
  if (steps_per_batch > 1) left = std::max<std::int64_t>(left, 0);
  const std::int64_t needed = position.step - (left > 0 ? position.steps_in_batch : 0) +
                              steps_per_batch * config.batch_phases().updates(position.step, left);
  if (is_open) {
    length.steps = std::max<std::int64_t>(needed, 0);
  } else if (train.steps > std::max(needed, position.step)) {  // steps without samples
    if (keys.is_set("train.num_samples")) {
      fail(ErrorKind::usage,
           "train.steps = {}, but train.num_samples = {} are used up at step {}: leave one of "
           "them out",
           train.steps, train.num_samples, needed);
    }
    // The value comes from an earlier run with other data or another batch size
    length.num_samples = 0;
  }
  return length;
}

std::optional<std::int64_t> steps_of_tokens(const RunConfig& config) {
  const TrainConfig& train = config.train;
  model::ModelConfig shape = config.model;
  const bool has_shape = !shape.preset.empty() || shape.hidden_size > 0;
  if (train.tokens_per_param == 0 || !has_shape || shape.vocab_size == 0 ||
      train.global_batch == 0 || train.seq_len == 0)
    return std::nullopt;
  model::resolve(shape, shape.vocab_size);
  const double tokens = train.tokens_per_param * shape.num_parameters_wide();
  const double steps = std::floor(
      tokens / (static_cast<double>(train.global_batch) * static_cast<double>(train.seq_len)));
  if (!(steps <= 1e12)) {
    fail(ErrorKind::usage,
         "train.tokens_per_param = {} makes {} steps. It must make at most 1e12 steps",
         number_text(train.tokens_per_param), number_text(steps));
  }
  return std::max<std::int64_t>(static_cast<std::int64_t>(steps), 1);
}

void show_token_rule(const RunConfig& config, config::ConfigSet& keys) {
  if (config.train.tokens_per_param == 0 || config.train.steps != 0 || !keys.problems().empty())
    return;
  keys.set("train.steps", std::to_string(steps_of_tokens(config).value_or(0)),
           "train.tokens_per_param x parameters / (train.global_batch x train.seq_len)");
}

std::string tokens_per_step(const data::BatchPhases& phases, std::int64_t done, std::int64_t last,
                            std::int64_t sample_tokens) {
  const auto count = [&](std::int64_t batch) {
    return format_count(static_cast<double>(batch * sample_tokens));
  };
  std::string text = cat(count(phases.global_batch(done + 1)), " tokens per step");
  for (const data::BatchPhases::Phase& phase : phases.phases())
    if (phase.after_step > done && phase.after_step < last)
      text += formatted(", {} after step {}", count(phase.global_batch), phase.after_step);
  return text;
}

void check_steps(const RunStart& start, std::int64_t steps, std::int64_t done) {
  if (steps >= done) return;
  fail(ErrorKind::usage, "train.steps = {}, but {} has done {}: give {} or more{}", steps,
       start.checkpoint, done, done,
       start.kind == RunStart::Kind::state ? ", or --init to begin at step 0" : "");
}

}  // namespace trireme::train
