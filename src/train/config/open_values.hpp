#pragma once
#include <map>
#include <string>

#include "core/problems.hpp"
#include "train/config/config.hpp"

/// Chooses the values that the configuration leaves open until all ranks have started: global
/// batch size, precision and final learning rate. Also makes relative paths absolute. The chosen
/// values are used by the run, written to config.toml and saved in checkpoints.
namespace trireme::train {

/// The facts that the choice depends on.
struct OpenValueFacts {
  int data_ranks = 1;
  bool has_bf16 = false;  // true if the devices of all ranks support bf16
  /// Configuration of the run's newest checkpoint, by key. A resumed run keeps its values.
  std::map<std::string, std::string> saved = {};
};

/// Sets train.global_batch (then train.accumulation is 0), train.precision and optim.min_lr, and
/// makes data.path, data.valid_path and checkpoint.resume absolute. Adds a problem if accumulation
/// and global_batch contradict each other. Returns a line for the log if it chose a batch size,
/// else "".
std::string fill_open_values(RunConfig& config, const OpenValueFacts& facts, Problems& problems);

}  // namespace trireme::train
