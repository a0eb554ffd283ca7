#include "train/cost/working_memory.hpp"

#include <algorithm>

#include "train/cost/rank_units.hpp"

namespace trireme {
namespace {

/// Returns the activations of one block and one micro-batch without activation checkpointing: those
/// of a model that has one layer.
double activations_of_one_block(const UpdateFacts& facts) {
  UpdateFacts one = facts;
  one.parallel.recompute = "none";
  one.parallel.pp = 1;
  one.parallel.zero = 0;
  one.parallel.zero_shard = 0;
  one.ranks = static_cast<int>(one.parallel.tp * one.parallel.cp);
  one.micro_steps = 1;
  one.model.num_layers = 1;
  one.model.moe.first_dense_layers = 0;
  one.parallel.ep = 1;  // as many rows come as leave
  return std::max(0.0, static_cast<double>(memory_formula(one, 0).activation_peak_bytes));
}

}  // namespace

double block_backward_bytes(const UpdateFacts& facts) {
  const ModelConfig& m = facts.model;
  const MoeConfig& moe = m.moe;
  const double width =
      moe.on() ? static_cast<double>(moe.num_experts_per_tok * moe.moe_intermediate_size +
                                     moe.shared_width())
               : static_cast<double>(m.intermediate_size);
  const double grads =
      static_cast<double>(facts.tokens()) * static_cast<double>(facts.compute_size()) *
      (3 * width / static_cast<double>(facts.parallel.tp) + 2 * static_cast<double>(m.hidden_size));
  return grads + (facts.parallel.recompute == "none" ? 0 : activations_of_one_block(facts));
}

double gathered_bytes(const UpdateFacts& facts, const RankMemory& formula, int rank) {
  if (formula.gathered_peak_bytes >= 0) return static_cast<double>(formula.gathered_peak_bytes);
  const RankUnits units = rank_units(facts, rank);
  std::int64_t largest = *std::ranges::max_element(units.elements);
  for (const std::int64_t experts : units.experts) largest = std::max(largest, experts);
  const GatherPlan gathers = plan_gathers(facts, units, passes_of(facts, rank));
  return static_cast<double>(gathers.peak_elements) * static_cast<double>(facts.compute_size()) +
         2 * static_cast<double>(largest) * static_cast<double>(facts.main_size());
}

double logit_bytes(const UpdateFacts& facts, std::int64_t rows, double bytes_each) {
  return bytes_each * static_cast<double>(std::min(facts.tokens(), rows)) *
         static_cast<double>(facts.model.vocab_size) / static_cast<double>(facts.parallel.tp);
}

}  // namespace trireme
