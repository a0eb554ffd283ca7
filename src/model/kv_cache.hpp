#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/paged_attention.hpp"

namespace trireme::model {

/// Keys and values of all sequences, for each layer of this rank, in blocks from
/// generate/cache/kv_blocks.hpp.
struct KvCache {
  std::vector<ops::PagedCache> layers;
};

/// The input of one forward pass: the next tokens of some sequences.
struct CachedStep {
  at::Tensor tokens;     // [rows] int64
  at::Tensor previous;   // [rows] int64: the token before each token, -1: none; for model.smear
  at::Tensor positions;  // [1, rows] int64, counted from 0 in each sequence
  at::Tensor kept;       // [kept] int64: rows to return hidden states of; undefined: all
  at::Tensor in;         // [rows, D]: output of the previous stage; undefined in the first stage
  std::vector<ops::PagedPlan> plans;  // one for each mask of the model's layers
  bool adapters = true;               // false: compute the base model without adapters

  /// Returns the plan of layers with this mask.
  [[nodiscard]] const ops::PagedPlan& plan(const ops::AttentionMask& mask) const;
};

}  // namespace trireme::model
