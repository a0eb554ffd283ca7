#pragma once
#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention/plan.hpp"

namespace trireme::parallel {

class RouteMemo;

/// The tokens of a micro-batch that have a target. The host finds them before it uploads the batch,
/// so that no objective has to wait for the device to find or to check them.
struct TargetTokens {
  std::vector<std::int64_t> tokens;     // indices into B * T, ascending
  at::Tensor index;                     // [N] int64: `tokens` on the device of the micro-batch
  std::vector<std::int64_t> sequences;  // preference pairs: Microbatch::sequence_of of each token
  std::int64_t least = 0;  // smallest and largest target of the whole rows; without targets, 0, -1
  std::int64_t most = -1;
};

/// The inputs of one forward pass, in global coordinates. Tensors are on the model's device. With
/// context parallelism, T counts the tokens of this rank, and bounds refer to whole rows.
struct Microbatch {
  at::Tensor tokens;   // [B, T] int64
  at::Tensor targets;  // [B, T] int64; kIgnoredTarget: no target; undefined for inference
  // null for a batch that was made from tensors; its target tokens are then searched on the device
  std::shared_ptr<const TargetTokens> target_tokens;
  at::Tensor target_weights;  // [B, T] fp32, weight of each target's loss; undefined: all 1
  at::Tensor positions;       // [B, T] int64, from 0 in each document segment
  // [B, T] int64 in [0, 2^32), counters for dropout masks: the position in the whole row. For
  // preference pairs, the counter of a token does not depend on the other content of the row.
  at::Tensor dropout_positions;
  at::Tensor samples;  // [B] int64, global sample indices; they seed dropout together with the step
  std::vector<std::vector<std::int64_t>>
      bounds;  // document boundaries of each row: 0 .. T; empty: one document per row
  // shared by all layers of this micro-batch, forward and backward
  std::shared_ptr<ops::AttentionMemo> attention = ops::make_attention_memo();
  // positions of every cp rank; empty: rows are not sharded
  std::vector<ops::RowPositions> positions_of_ranks;
  // preference pairs: [B, T] int64, 2 * pair + side (1: rejected), -1: padding
  at::Tensor sequence_of;
  std::int64_t num_pairs = 0;
  std::vector<std::int64_t> pair_records;  // [num_pairs], see Batch
  std::vector<std::uint64_t> pair_keys;    // [num_pairs], see Batch
  // generated answers: [N, 8] fp64 in host memory, the members of data::PolicyTarget for each of the
  // N targets, in token order; undefined: other samples
  at::Tensor policy;
  at::Tensor padding;  // [B, T] bool; undefined: no padding
  // [B, T] int64, see previous_tokens(); undefined: the sequences are not sharded
  at::Tensor previous;
  // scalar fp64 on the device: replaces the grad_scale of Objective::forward(), for objectives
  // with has_fixed_shapes(); undefined outside captured work
  at::Tensor grad_scale;
  double aux_weight = 0;  // weight of the router losses, per sequence or per micro-batch
  // routes of the forward pass, for activation checkpointing; null if nothing is recomputed
  std::shared_ptr<RouteMemo> routes;
  std::int64_t step = 0;
  bool training = false;  // dropout is active
  bool adapters = true;   // false: the base model without adapters

  // answers of other prompts, see data::Batch::mismatched; null if there are none
  std::shared_ptr<const Microbatch> mismatched;

  /// Returns the tensors [B, T], of which every rank of cp holds its positions.
  [[nodiscard]] std::array<at::Tensor*, 8> per_token() {
    return {&tokens,      &targets, &target_weights, &positions, &dropout_positions,
            &sequence_of, &padding, &previous};
  }

  [[nodiscard]] std::int64_t rows() const { return tokens.size(0); }

  [[nodiscard]] std::int64_t length() const { return tokens.size(1); }
};

/// Returns the token before each token of the same document, -1 for its first token. `tokens` and
/// `positions` are [B, T]; a document begins at position 0.
inline at::Tensor previous_tokens(const at::Tensor& tokens, const at::Tensor& positions) {
  return tokens.roll(1, -1).masked_fill(positions.eq(0), -1);
}

}  // namespace trireme::parallel
