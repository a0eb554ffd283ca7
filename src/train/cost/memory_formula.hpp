#pragma once
#include <cstdint>

#include "train/cost/update_facts.hpp"

namespace trireme::train {

/// Bytes of one rank in one optimizer step, counted or by formula.
struct RankMemory {
  std::int64_t weight_bytes = 0;           // weights for computation
  std::int64_t main_bytes = 0;             // master weights if they are a separate copy
  std::int64_t grad_bytes = 0;             // master gradients, whole or this rank's shard
  std::int64_t optimizer_bytes = 0;        // optimizer state
  std::int64_t gathered_peak_bytes = 0;    // unsharded units of weights and gradients
  std::int64_t activation_peak_bytes = 0;  // peak of saved activations

  /// Calls visit(name, value) for every field.
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

/// Returns the bytes of `rank` in one optimizer step. activation_peak_bytes is -1 (unknown) with
/// plain operations, with rows of different lengths, and if experts receive tokens from other
/// ranks. gathered_peak_bytes is -1 under ZeRO-2 and 3 with a pipeline or with sharded experts.
/// Weights, gradients and optimizer state come from state_bytes.
RankMemory memory_formula(const UpdateFacts& facts, int rank);

/// Returns the sum of all known fields.
double known_bytes(const RankMemory& memory);

/// Returns the largest known_bytes of all ranks.
double most_known_bytes(const UpdateFacts& facts);

// The following estimates cover memory that memory_formula does not count, because no run reports
// it.

/// Returns the bytes that the backward pass of one block needs in addition to the saved
/// activations: gradients of its widest tensors, and with activation checkpointing all recomputed
/// activations.
double block_backward_bytes(const UpdateFacts& facts);

/// Returns the bytes of gathered units on `rank`: `formula.gathered_peak_bytes` if it is known,
/// else an estimate from gathered weights, the unit of gradients that is filled and the one that is
/// reduced.
double gathered_bytes(const UpdateFacts& facts, const RankMemory& formula, int rank);

/// Returns the bytes of the logits of at most `rows` tokens, with `bytes_each` bytes per logit.
double logit_bytes(const UpdateFacts& facts, std::int64_t rows, double bytes_each);

}  // namespace trireme::train
