#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace trireme {

/// Keys and values of the tokens seen so far, for each layer: [B, kv_heads, capacity, head_dim],
/// keys after RoPE.
struct KvCache {
  struct LayerCache {
    at::Tensor keys;
    at::Tensor values;
  };

  std::vector<LayerCache> layers;
  std::int64_t length = 0;  // tokens seen
};

}  // namespace trireme
