#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/schedule.hpp"
#include "train/cost/update_facts.hpp"

namespace trireme {

/// Places of the units that one stage's forward pass reads.
struct StageUnits {
  StageRange layers;
  std::optional<std::size_t> embedding = {};
  std::vector<std::size_t> blocks = {};
  std::vector<std::size_t> head = {};  // from the final norm until the loss has its gradient
};

/// The units of one rank, from the model's shape: of each of its stages embedding, blocks, head; then
/// under ZeRO-3 one of parameters smaller than `zero_persist`, if there are any; with LoRA the
/// adapters of each block. Apart from these, of experts in their own grid those of each block.
struct RankUnits {
  /// Of each. Matrices that are used as one lie back to back, others begin at multiples of 64
  /// elements, and a unit is padded to 64 for each of its data ranks.
  std::vector<std::int64_t> elements = {};
  std::vector<StageUnits> stages = {};
  std::size_t walked = 0;          // those that passes go through
  std::size_t first_trained = 0;   // with LoRA the adapters
  std::int64_t layers = 0;         // of all stages
  std::int64_t expert_layers = 0;  // of them, those with experts
  std::optional<std::size_t> table_in_two = {};
  /// Of experts in a grid of their own, one of each block that has them; and which block's they are.
  std::vector<std::int64_t> experts = {};
  std::vector<std::size_t> experts_of = {};

  [[nodiscard]] std::vector<std::int64_t> trained() const {
    return {elements.begin() + static_cast<std::ptrdiff_t>(first_trained), elements.end()};
  }

  /// Experts are, unless adapters are.
  [[nodiscard]] std::vector<std::int64_t> trained_experts() const {
    return first_trained == 0 ? experts : std::vector<std::int64_t>{};
  }

  /// Micro-batches go through it: the embedding; the head.
  [[nodiscard]] bool has_embedding() const { return stages.front().embedding.has_value(); }

  [[nodiscard]] bool has_head() const { return !stages.back().head.empty(); }
};

RankUnits rank_units(const UpdateFacts& facts, int rank);

/// The passes of a rank.
std::vector<pipeline::Pass> passes_of(const UpdateFacts& facts, int rank);

/// Gathers of one update under ZeRO-3 and the most elements that are gathered at once: units are
/// used one after another, `zero_prefetch` of the next ones are gathered ahead; the one of small
/// parameters is gathered once and stays.
struct GatherPlan {
  std::vector<std::int64_t> gathers;  // of each unit, in the whole update
  std::vector<std::int64_t> expert_gathers;
  std::int64_t peak_elements = 0;
};

GatherPlan plan_gathers(const UpdateFacts& facts, const RankUnits& units,
                        const std::vector<pipeline::Pass>& passes);

}  // namespace trireme
