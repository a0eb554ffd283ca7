#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/schedule.hpp"
#include "train/cost/update_facts.hpp"

namespace trireme::train {

/// The indexes of the FSDP units of one stage.
struct StageUnits {
  model::StageRange layers;
  std::optional<std::size_t> embedding = {};
  std::optional<std::size_t> positions = {};  // learned positions
  std::vector<std::size_t> blocks = {};
  std::vector<std::size_t> head = {};  // units from the final norm to the gradient of the loss
};

/// The FSDP units (parameter groups that are gathered together) of one rank: embedding, blocks and
/// head of each of its stages; under ZeRO-3 one unit of parameters smaller than `zero_persist`, if
/// there are any; with LoRA the adapters of each block. Experts in a separate expert grid have
/// units of their own.
struct RankUnits {
  /// Elements of each unit. Matrices that are used as one are contiguous, others begin at multiples
  /// of 64 elements, and a unit is padded to a multiple of 64 for each of its data ranks.
  std::vector<std::int64_t> elements = {};
  std::vector<StageUnits> stages = {};
  std::size_t walked = 0;          // number of units that pipeline actions use
  std::size_t first_trained = 0;   // index of the first trainable unit (with LoRA the adapters)
  std::int64_t layers = 0;         // number of layers of all stages
  std::int64_t expert_layers = 0;  // number of those layers with experts
  std::optional<std::size_t> replicated_embedding = {};
  /// Elements of the expert units, one per block with experts, and the index of each block's unit.
  std::vector<std::int64_t> experts = {};
  std::vector<std::size_t> experts_of = {};

  [[nodiscard]] std::vector<std::int64_t> trained() const {
    return {elements.begin() + static_cast<std::ptrdiff_t>(first_trained), elements.end()};
  }

  /// Returns the trainable expert units; empty with LoRA.
  [[nodiscard]] std::vector<std::int64_t> trainable_experts() const {
    return first_trained == 0 ? experts : std::vector<std::int64_t>{};
  }

  /// Returns true if this rank has the embedding.
  [[nodiscard]] bool has_embedding() const { return stages.front().embedding.has_value(); }

  [[nodiscard]] bool has_head() const { return !stages.back().head.empty(); }
};

RankUnits rank_units(const UpdateFacts& facts, int rank);

/// Returns the pipeline actions of a rank.
std::vector<pipeline::StageAction> actions_of(const UpdateFacts& facts, int rank);

/// The gathers of one optimizer step under ZeRO-3 and the peak of gathered elements. Units are used
/// one after another, and `zero_prefetch` next units are gathered ahead. The unit of small
/// parameters is gathered once and stays.
struct GatherPlan {
  std::vector<std::int64_t> gathers;  // number of gathers of each unit
  std::vector<std::int64_t> expert_gathers;
  std::int64_t peak_elements = 0;
};

GatherPlan plan_gathers(const UpdateFacts& facts, const RankUnits& units,
                        const std::vector<pipeline::StageAction>& passes);

}  // namespace trireme::train
