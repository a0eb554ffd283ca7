#pragma once
#include <memory>
#include <string>

#include "train/run/run_data.hpp"
#include "train/run/run_request.hpp"

/// The configuration of a run becomes whole in three steps, each of which returns it: open values,
/// then what follows from the data, then what follows from the start. Keys are read from the
/// configuration that they are bound to, so run_task assigns each result to that one before the next
/// step.
namespace trireme {

struct OpenChoice {
  RunConfig config;
  std::string note;  // a line for the log, or ""
};

/// Collective: fills in what the configuration leaves open until the ranks are up (open_values.hpp).
/// `has_bf16`: the devices of all ranks (preflight_ranks).
[[nodiscard]] OpenChoice choose_open_values(const RunRequest& run, bool has_bf16);

/// Throws Error(usage) or Error(data).
[[nodiscard]] std::unique_ptr<RunData> open_data(const RunRequest& run);

/// Resolves the model's shape by the tokenizer of the data. Throws Error(usage) if the data has more
/// tokens than the weights that the run starts from, or as resolve() of the model.
void resolve_model(RunConfig& config, const ConfigSet& keys, const RunStart& start,
                   const RunData& data);

/// Returns the configuration with the sequence length and the model's shape that follow from the
/// data. Throws Error(usage) for a layout that does not fit them.
[[nodiscard]] RunConfig resolve_by_data(const RunRequest& run, const RunData& data);

/// Checks configuration and data against what the run starts from (check_start), and returns the
/// configuration with the run's length. Throws Error(usage) or Error(data).
[[nodiscard]] RunConfig resolve_by_start(const RunRequest& run, const RunData& data);

/// Returns "" if a run that takes the state of a checkpoint with these values continues in the data
/// where that one stopped, else why it begins at sample 0. `where` is the checkpoint.
std::string other_data(const ConfigSet& keys, const SampleStream& stream, const RunValues& values,
                       const std::string& where);

/// Checks that the resolved configuration fits what the run starts from: the run's own keys and data, or
/// the model, adapters and chat format of another checkpoint. Throws Error(usage); changes nothing.
void check_start(const RunStart& start, const RunConfig& config, const ConfigSet& keys,
                 const RunData& data);

}  // namespace trireme
