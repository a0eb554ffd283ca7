#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention/plan.hpp"
#include "ops/path.hpp"

/// Scaled dot-product attention with grouped heads, document boundaries and positions in the row.
namespace trireme::ops {

struct AttentionOutput {
  at::Tensor out;  // [B, H, Tq, D], a view of contiguous [B, Tq, H, D]
  at::Tensor lse;  // [B, H, Tq] fp32 or fp64: log-sum-exp of each query's scores
};

struct AttentionGrads {
  at::Tensor q;  // [B, H, Tq, D]
  at::Tensor k;  // [B, Hk, Tk, D]
  at::Tensor v;  // [B, Hk, Tk, D]
};

/// Computes attention of q [B, H, Tq, D] over k, v [B, Hk, Tk, D]; Hk divides H, and query head h
/// reads key head h / (H / Hk). Any strides. A query without keys has out 0 and lse -inf.
/// Deterministic on a CPU. Throws Error(internal) if shapes, bounds or positions do not match.
AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionSetup& setup, Path path = Path::fast);

/// Computes the gradients. `forward` must be the result over all keys of the queries. k and v may
/// be a subset of these keys: the results are then the gradients of the subset, and partial
/// gradients of the queries that add up over all subsets.
AttentionGrads attention_backward(const at::Tensor& grad_out, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOutput& forward, const AttentionSetup& setup,
                                  Path path = Path::fast);

/// Merges `part`, attention of the same queries over other keys, into `sum`, in fp32 or fp64.
void merge_attention(AttentionOutput& sum, const AttentionOutput& part);

/// Attention with autograd; returns out [B, H, Tq, D]. On a GPU, whole rows of one document use
/// library_attention and other inputs use variable-length kernels (attention/varlen).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSetup& setup, Path path = Path::fast);

/// Attention by ATen's scaled_dot_product_attention, which selects cuDNN, flash or memory-efficient
/// kernels on a GPU. Other inputs use an explicit mask. Every query must see a key.
at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup);

/// Returns true if attention over packed rows runs variable-length kernels for queries like q
/// [B, H, T, D], which read the document boundaries on the device.
bool has_varlen_kernel(const at::Tensor& q, Path path);

/// Returns [B, Tq, Tk] bool: true where a query (row) sees a key (column). `length` applies to
/// queries or keys without positions in the setup.
at::Tensor attention_mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t length,
                          at::Device device);

}  // namespace trireme::ops
