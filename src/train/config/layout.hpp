#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/problems.hpp"
#include "model/config.hpp"
#include "parallel/config.hpp"

namespace trireme {

/// What a layout must fit. The model is resolved.
struct LayoutFacts {
  const ModelConfig& model;
  std::vector<std::int64_t> seq_lens;            // of all phases of the data, in tokens
  int ranks = 1;                                 // started
  std::optional<std::int64_t> local_steps = {};  // that a run which goes on has to keep
};

/// Adds every reason why `config` cannot be, and if there is one, the nearest layout of as many
/// ranks that can.
void check_layout(const ParallelConfig& config, const LayoutFacts& facts, Problems& problems);

/// Throws Error(usage) where parallel.schedule is a file of another number of micro-batches than an
/// update has.
void check_micro_batches(const ParallelConfig& config, std::int64_t micro_steps);

/// One line that names the keys which change nothing beside the others (zero_shard without ZeRO);
/// "" if there is none. Not refused: one configuration serves many layouts.
std::string keys_without_effect(const ParallelConfig& config);

}  // namespace trireme
