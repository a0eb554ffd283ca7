#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/config_set.hpp"
#include "data/batch_phases.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

/// The length of a run: how many updates it has, and at which sample the last one ends.
namespace trireme::train {

struct RunLength {
  std::int64_t steps = 0;        // train.steps
  std::int64_t num_samples = 0;  // train.num_samples
  std::string warning;           // set if one update holds more samples than the epochs have
};

/// Returns the length that the configuration asks for. If train.steps is 0, the length follows from
/// train.num_samples or train.epochs, and the last update holds the remaining samples.
/// Throws Error(usage) for epochs of data without a defined length, and for contradicting numbers.
RunLength run_length(const RunConfig& config, const RunStart& start, const config::ConfigSet& keys,
                     const RunData& data, const Task& task);

/// Returns the steps of train.tokens_per_param, at least 1; nullopt while the number of parameters,
/// train.global_batch or train.seq_len is open, or without the key. Throws Error(usage) for more
/// than 1e12 steps.
std::optional<std::int64_t> steps_of_tokens(const RunConfig& config);

/// Shows the steps of train.tokens_per_param, and the rule as the origin of train.steps, for a
/// command that opens no data. The steps stay 0 if they depend on the data or on the ranks.
void show_token_rule(const RunConfig& config, config::ConfigSet& keys);

/// Returns the tokens of the steps after `done`, up to `last`, for the log: "2.0k tokens per step",
/// or with phases "256 tokens per step, 512 after step 2". `sample_tokens`: tokens per sample.
std::string tokens_per_step(const data::BatchPhases& phases, std::int64_t done, std::int64_t last,
                            std::int64_t sample_tokens);

/// Throws Error(usage) if `steps` (train.steps) is less than `done`, the number of completed steps.
void check_steps(const RunStart& start, std::int64_t steps, std::int64_t done);

}  // namespace trireme::train
