#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention/plan.hpp"

namespace trireme {

class RouteMemo;

/// What one forward pass reads, in global coordinates. Tensors are on the model's device. With
/// context parallelism T is that of this rank's tokens, and bounds are of whole rows.
struct Microbatch {
  at::Tensor tokens;  // [B, T] int64
  at::Tensor
      targets;  // [B, T] int64, ops::kIgnoredTarget where there is none; undefined for inference
  at::Tensor target_weights;  // [B, T] fp32, factor of each target's loss; undefined: all 1
  at::Tensor positions;       // [B, T] int64, from 0 in each document segment
  // [B, T] int64 in [0, 2^32), what dropout masks are drawn for: place in the whole row; of pairs
  // the same number for a token whatever else is in the row.
  at::Tensor places;
  at::Tensor samples;  // [B] int64, global sample indices; with the step they seed dropout
  std::vector<std::vector<std::int64_t>>
      bounds;  // document borders of each row: 0 .. T; empty: one document a row
  std::vector<ops::RowPlaces> places_of_ranks;  // of every rank of cp; empty: rows are whole
  at::Tensor sequence_of;  // of pairs [B, T] int64, 2 * pair + side (1: rejected), -1: padding
  std::int64_t num_pairs = 0;
  std::vector<std::int64_t> pair_records;  // [num_pairs], see Batch
  std::vector<std::uint64_t> pair_keys;    // [num_pairs], see Batch
  at::Tensor padding;                      // of rows [B, T] bool; undefined: there is none
  double aux_weight = 0;  // of routers' losses: factor of a sequence's, or of the micro-batch's
  std::shared_ptr<RouteMemo> routes;  // between a forward pass and its second run; null: neither
  std::int64_t step = 0;
  bool training = false;  // dropout is active
  bool adapters = true;   // false: the base model, as if it had none

  [[nodiscard]] std::int64_t rows() const { return tokens.size(0); }

  [[nodiscard]] std::int64_t length() const { return tokens.size(1); }
};

}  // namespace trireme
