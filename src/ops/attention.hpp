#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/plan.hpp"
#include "ops/path.hpp"

/// Scaled dot-product attention with grouped heads, document borders and places in the row.
namespace trireme::ops {

struct AttentionOutput {
  at::Tensor out;  // [B, H, Tq, D], a view of contiguous [B, Tq, H, D]
  at::Tensor lse;  // [B, H, Tq] fp32 or fp64: log of the sum of exponentials of a query's scores
};

struct AttentionGrads {
  at::Tensor q;  // [B, H, Tq, D]
  at::Tensor k;  // [B, Hk, Tk, D]
  at::Tensor v;  // [B, Hk, Tk, D]
};

/// q [B, H, Tq, D]; k, v [B, Hk, Tk, D] with Hk a divisor of H (query head h reads key head h / (H /
/// Hk)); any strides. A query that sees no key has out 0 and lse -inf. Deterministic on a CPU.
/// Throws Error(internal) if shapes, bounds or places do not fit.
AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionSetup& setup, Path path = Path::fast);

/// `forward` is of the whole softmax: with its out and lse, the gradients of some of its keys (and
/// of the queries through them) come from those keys alone, and sum over blocks of keys.
AttentionGrads attention_backward(const at::Tensor& grad_out, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOutput& forward, const AttentionSetup& setup,
                                  Path path = Path::fast);

/// `sum` becomes the attention over its keys and those of `part`, in fp32 (fp64 of fp64); the same
/// queries, no key in both.
void merge_attention(AttentionOutput& sum, const AttentionOutput& part);

/// With autograd. Returns out [B, H, Tq, D]. On a GPU whole rows of one document go to
/// library_attention, the others to kernels for sequences of many lengths (attention/varlen).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSetup& setup, Path path = Path::fast);

/// The same by ATen's scaled_dot_product_attention, which picks cuDNN, flash or memory-efficient
/// kernels on a GPU; what is not whole rows of one document goes with an explicit mask. Every query
/// must see a key.
at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup);

/// [B, Tq, Tk] bool, true where a query (row) may see a key (column); what the plain path uses.
/// `length` is that of the sides for which the setup names no places.
at::Tensor attention_mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t length,
                          at::Device device);

}  // namespace trireme::ops
