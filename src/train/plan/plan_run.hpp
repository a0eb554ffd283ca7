#pragma once
#include <cstdint>
#include <string_view>

#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme {

/// What a run will take.
struct RunPlan {
  std::int64_t memory_bytes_per_rank =
      0;  // the formulas of layout.json, rank 0; activations where known
  std::int64_t checkpoint_bytes = 0;  // of one
  std::int64_t disk_bytes = 0;        // of all that are kept at once
  std::int64_t steps = 0;             // train.steps, also where train.epochs says it
  std::int64_t steps_done = 0;        // by the run so far
};

/// A run on `ranks` ranks before any of them exists: opens the data and resolves the configuration with
/// it, as the ranks will. Throws Error(usage) or Error(data) for what they would refuse: data, layout,
/// batch, a start that cannot be read, and keys that differ from those of a run that goes on. `on_gpu`:
/// of a kind that has bf16.
RunPlan plan_run(const Task& task, RunConfig& config, ConfigSet& keys, const RunStart& start,
                 int ranks, bool on_gpu);

}  // namespace trireme
