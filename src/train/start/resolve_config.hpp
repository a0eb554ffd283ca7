#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/problems.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_request.hpp"

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

/// Fills in the sequence length and the model's shape that follow from the data, and checks the layout
/// on `ranks` ranks. Throws Error(usage) if the data has more tokens than the weights that the run
/// starts from, and with `problems` for a shape or layout that does not fit.
void resolve_shape(RunConfig& config, const ConfigSet& keys, const RunStart& start,
                   const RunData& data, int ranks, Problems problems = Problems());

/// Checks configuration and data against what the run starts from (check_start), and fills in the
/// run's length. Returns warnings, some of them empty. Throws Error(usage) or Error(data).
std::vector<std::string> resolve_length(RunConfig& config, const ConfigSet& keys,
                                        const RunStart& start, const RunData& data);

/// Returns the configuration with what resolve_shape fills in.
[[nodiscard]] RunConfig resolve_by_data(const RunRequest& run, const RunData& data);

/// Returns the configuration with what resolve_length fills in.
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
