#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/problems.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_request.hpp"

/// Three steps resolve the configuration of a run: open values, values that follow from the data,
/// and values that follow from the start. Each step returns the configuration. run_task assigns it
/// before the next step, because ConfigSet reads the keys from that object.
namespace trireme::train {

struct OpenChoice {
  RunConfig config;
  std::string note;  // line for the log, or ""
};

/// Chooses the values that the configuration leaves open (open_values.hpp). `has_bf16`: true if the
/// devices of all ranks support bf16. Collective.
[[nodiscard]] OpenChoice choose_open_values(const RunRequest& run, bool has_bf16);

/// Throws Error(usage) if this device cannot train with train.fp8, or not in train.precision.
void check_fp8_device(const TrainConfig& train, at::Device device);

/// Reports train.fp8 if no matrix of the resolved model is large enough for fp8.
void check_fp8_linears(const RunConfig& config, Problems& problems);

/// Throws Error(usage) or Error(data).
[[nodiscard]] std::unique_ptr<RunData> open_data(const RunRequest& run);

/// Sets the sequence length and the model's shape from the data, and checks that the layout is
/// valid for this number of ranks. Throws Error(usage) if the vocabulary of the data is larger than
/// that of the starting weights. Adds the problems of the shape and of the layout to `problems` and
/// throws them all, if there are any.
void resolve_shape(RunConfig& config, const config::ConfigSet& keys, const RunStart& start,
                   const RunData& data, int ranks, Problems problems = Problems());

/// Checks configuration and data against the start (check_start), and sets the run's length.
/// Returns warnings, some of which may be empty. Throws Error(usage) or Error(data).
std::vector<std::string> resolve_length(RunConfig& config, const config::ConfigSet& keys,
                                        const RunStart& start, const RunData& data,
                                        const Task& task);

/// Return a copy of the configuration that resolve_shape or resolve_length has completed.
[[nodiscard]] RunConfig resolve_by_data(const RunRequest& run, const RunData& data);
[[nodiscard]] RunConfig resolve_by_start(const RunRequest& run, const RunData& data);

/// Returns "" if a run that starts from this training state can continue at the checkpoint's data
/// position. Otherwise returns the reason why it begins at sample 0. `where` names the checkpoint.
std::string data_mismatch(const config::ConfigSet& keys, const data::SampleStream& stream,
                          const RunValues& values, const std::string& where);

/// Checks the resolved configuration against the start: the run's own keys and data, or the model,
/// adapters and chat format of another checkpoint. Throws Error(usage); changes nothing.
void check_start(const RunStart& start, const RunConfig& config, const config::ConfigSet& keys,
                 const RunData& data);

}  // namespace trireme::train
