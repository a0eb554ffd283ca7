#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/paged_attention.hpp"

namespace trireme {

/// Keys and values of texts, for each layer, in blocks that an owner of texts shares out
/// (generate/cache/kv_blocks.hpp).
struct KvCache {
  std::vector<ops::PagedCache> layers;
};

/// The next tokens of some texts: one pass of the model.
struct CachedStep {
  at::Tensor tokens;     // [rows] int64
  at::Tensor positions;  // [1, rows] int64, from 0 in each text
  at::Tensor kept;       // [kept] int64: rows whose hidden states are wanted; undefined: all
  ops::PagedPlan plan;
  bool adapters = true;  // false: the base model, as if it had none
};

}  // namespace trireme
