#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/problems.hpp"
#include "model/fp8_linears.hpp"
#include "parallel/config.hpp"

namespace trireme::train {

/// The facts that a layout is checked against. `model` is resolved.
struct LayoutFacts {
  const model::ModelConfig& model;
  std::vector<std::int64_t> seq_lens;            // sequence lengths of all data phases, in tokens
  int ranks = 1;                                 // number of ranks of the job
  std::optional<std::int64_t> local_steps = {};  // value that a resumed run must keep
  model::Fp8Mode fp8 = model::Fp8Mode::off;
};

/// Adds all reasons why the layout `config` is invalid. If there are any, also adds the nearest
/// valid layout for the same number of ranks.
void check_layout(const parallel::ParallelConfig& config, const LayoutFacts& facts,
                  Problems& problems);

/// Throws Error(usage) if parallel.schedule is a file for another number of micro-batches than one
/// update has.
void check_micro_batches(const parallel::ParallelConfig& config, std::int64_t micro_steps);

/// Returns one line that names the keys without effect (for example zero_shard without ZeRO); "" if
/// there are none. They are not errors, because one configuration may serve several layouts.
std::string keys_without_effect(const parallel::ParallelConfig& config);

}  // namespace trireme::train
