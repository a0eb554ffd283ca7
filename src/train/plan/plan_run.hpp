#pragma once
#include <cstdint>

#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme::train {

/// Resources and length of a run.
struct RunPlan {
  std::int64_t memory_bytes_per_rank = 0;  // formulas of layout.json for rank 0
  std::int64_t checkpoint_bytes = 0;       // size of one checkpoint
  std::int64_t disk_bytes = 0;             // size of all checkpoints that exist at once
  std::int64_t steps = 0;                  // train.steps, or the value that train.epochs gives
  std::int64_t steps_done = 0;             // steps that the run has completed already
};

/// Plans a run on `ranks` ranks before they exist: opens the data and resolves the configuration
/// like the ranks will. Throws Error(usage) or Error(data) for everything that the ranks would
/// refuse: data, layout, batch size, an unreadable start, and keys that differ from the run that
/// is resumed. `on_gpu`: true if the ranks have GPUs with bf16.
RunPlan plan_run(const Task& task, RunConfig& config, config::ConfigSet& keys,
                 const RunStart& start, int ranks, bool on_gpu);

/// Returns the largest number of checkpoints that exist at once in a run of `steps` steps. The
/// oldest one is deleted after the next one is committed.
std::int64_t checkpoints_on_disk(const CheckpointConfig& config, std::int64_t steps);

/// Checks what does not depend on the ranks: the start, the configuration and the data. Throws
/// Error(usage) or Error(data).
void check_inputs(const Task& task, RunConfig& config, config::ConfigSet& keys,
                  const RunStart& start);

}  // namespace trireme::train
