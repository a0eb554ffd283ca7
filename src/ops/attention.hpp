#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/path.hpp"

/// Scaled dot-product attention with grouped heads and document borders.
namespace trireme::ops {

/// Document borders of every row of a batch: 0 = first < ... < T, one list a row. Empty: every row
/// is one document. No query sees a key of another document.
using RowBounds = std::vector<std::vector<std::int64_t>>;

struct AttentionSetup {
  double scale = 1.0;  // of the scores, commonly 1 / sqrt(D)
  bool causal = true;
  RowBounds bounds = {};
};

struct AttentionOutput {
  at::Tensor out;  // [B, H, T, D], a view of contiguous [B, T, H, D]
  at::Tensor lse;  // [B, H, T] fp32 or fp64: log of the sum of exponentials of every query's scores
};

struct AttentionGrads {
  at::Tensor q;  // [B, H, T, D]
  at::Tensor k;  // [B, Hk, T, D]
  at::Tensor v;  // [B, Hk, T, D]
};

/// q [B, H, T, D]; k, v [B, Hk, T, D] with Hk a divisor of H (query head h reads key head h / (H /
/// Hk)); any strides. Deterministic. Throws Error(internal) if shapes or bounds do not fit.
AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionSetup& setup, Path path = Path::fast);
AttentionGrads attention_backward(const at::Tensor& grad_out, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOutput& forward, const AttentionSetup& setup,
                                  Path path = Path::fast);

/// With autograd. Returns out [B, H, T, D]. The fast path of a GPU is library_attention.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSetup& setup, Path path = Path::fast);

/// The same by ATen's scaled_dot_product_attention, which picks cuDNN, flash or memory-efficient
/// kernels on a GPU; rows of several documents go with an explicit mask.
at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup);

/// [B, T, T] bool, true where a query (row) may see a key (column); what the plain path uses.
at::Tensor attention_mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t length,
                          at::Device device);

}  // namespace trireme::ops
