#pragma once
#include <map>
#include <string>

#include "core/problems.hpp"
#include "train/config/config.hpp"

/// What a configuration leaves open until the ranks are up: the size of an update, the precision,
/// the end of the learning rate, and where relative paths begin. The chosen values are what the run
/// computes with, writes to config.toml and saves.
namespace trireme {

/// What the choice depends on.
struct OpenValueFacts {
  int data_ranks = 1;
  bool has_bf16 = false;  // the devices of all ranks
  /// The configuration in the run's newest checkpoint, by key: a resumed run keeps what it has,
  /// wherever it runs now.
  std::map<std::string, std::string> saved = {};
};

/// Fills in train.global_batch (train.accumulation is 0 from then on), train.precision and
/// optim.min_lr; makes data.path, data.valid_path and checkpoint.resume absolute. Adds a problem if accumulation and global_batch disagree. Returns a line for the
/// log if a size was chosen that nobody gave, else "".
std::string fill_open_values(RunConfig& config, const OpenValueFacts& facts, Problems& problems);

}  // namespace trireme
