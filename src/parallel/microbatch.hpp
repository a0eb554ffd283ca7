#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention/plan.hpp"

namespace trireme::parallel {

class RouteMemo;

/// The inputs of one forward pass, in global coordinates. Tensors are on the model's device. With
/// context parallelism, T counts the tokens of this rank, and bounds refer to whole rows.
struct Microbatch {
  at::Tensor tokens;   // [B, T] int64
  at::Tensor targets;  // [B, T] int64; kIgnoredTarget: no target; undefined for inference
  at::Tensor target_weights;  // [B, T] fp32, weight of each target's loss; undefined: all 1
  at::Tensor positions;       // [B, T] int64, from 0 in each document segment
  // [B, T] int64 in [0, 2^32), counters for dropout masks: the position in the whole row. For
  // preference pairs, the counter of a token does not depend on the other content of the row.
  at::Tensor places;
  at::Tensor samples;  // [B] int64, global sample indices; they seed dropout together with the step
  std::vector<std::vector<std::int64_t>>
      bounds;  // document boundaries of each row: 0 .. T; empty: one document per row
  // positions of every cp rank; empty: rows are not sharded
  std::vector<ops::RowPositions> positions_of_ranks;
  // preference pairs: [B, T] int64, 2 * pair + side (1: rejected), -1: padding
  at::Tensor sequence_of;
  std::int64_t num_pairs = 0;
  std::vector<std::int64_t> pair_records;  // [num_pairs], see Batch
  std::vector<std::uint64_t> pair_keys;    // [num_pairs], see Batch
  at::Tensor padding;                      // [B, T] bool; undefined: no padding
  double aux_weight = 0;  // weight of the router losses, per sequence or per micro-batch
  // routes of the forward pass, for activation checkpointing; null if nothing is recomputed
  std::shared_ptr<RouteMemo> routes;
  std::int64_t step = 0;
  bool training = false;  // dropout is active
  bool adapters = true;   // false: the base model without adapters

  [[nodiscard]] std::int64_t rows() const { return tokens.size(0); }

  [[nodiscard]] std::int64_t length() const { return tokens.size(1); }
};

}  // namespace trireme::parallel
