#pragma once
#include <cstdint>

#include "train/cost/update_facts.hpp"

namespace trireme {

/// Bytes of one rank in one update, counted or by formula.
struct RankMemory {
  std::int64_t weight_bytes = 0;         // that the model computes with
  std::int64_t main_bytes = 0;           // main weights, where they are a copy of their own
  std::int64_t grad_bytes = 0;           // main gradients, whole or this rank's parts
  std::int64_t optimizer_bytes = 0;      // its state
  std::int64_t gathered_peak_bytes = 0;  // units of weights and of gradients that are whole for now
  std::int64_t activation_peak_bytes = 0;  // what forward leaves for backward, at the most

  /// visit(name, value) for every field.
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("weight_bytes", self.weight_bytes);
    visit("main_bytes", self.main_bytes);
    visit("grad_bytes", self.grad_bytes);
    visit("optimizer_bytes", self.optimizer_bytes);
    visit("gathered_peak_bytes", self.gathered_peak_bytes);
    visit("activation_peak_bytes", self.activation_peak_bytes);
  }
};

/// Returns the bytes of `rank` in one update. activation_peak_bytes is -1 if plain operations decide
/// what they keep, if rows have different numbers of tokens, and if routing decides what experts keep
/// of tokens from other ranks; gathered_peak_bytes is -1 under ZeRO-2 and 3 with a pipeline or with
/// sharded experts. Weights, gradients and optimizer state: state_bytes.
RankMemory memory_formula(const UpdateFacts& facts, int rank);

/// Returns the sum of all fields that are known.
double known_bytes(const RankMemory& memory);

/// Returns the sum for the rank that has most.
double most_known_bytes(const UpdateFacts& facts);

}  // namespace trireme
