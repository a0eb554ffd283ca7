#pragma once
#include <limits>

#include "ops/attention.hpp"

/// The implementations of attention; ops/attention.cpp selects one by device, dtype and shape.
/// Arguments are checked before. Private.
namespace trireme::ops {

using AttentionForward = AttentionOutput(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionSetup& setup);
using AttentionBackward = AttentionGrads(const at::Tensor& grad_out, const at::Tensor& q,
                                         const at::Tensor& k, const at::Tensor& v,
                                         const AttentionOutput& forward,
                                         const AttentionSetup& setup);

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Computes all scores as one matrix with ATen operations: any device and dtype; the reference.
AttentionForward plain_forward;
AttentionBackward plain_backward;

/// Uses ATen's CPU kernel: one call for the keys before the diagonal, one for the diagonal.
AttentionForward aten_forward;
AttentionBackward aten_backward;

/// Returns true if this CPU multiplies bf16 natively and the shapes fit: D is a multiple of 32, at
/// most 256. With explicit positions at least 16 queries are needed, because a single query of a
/// decode step would fill only one of the 64 columns of a tile.
bool tiles_apply(const at::Tensor& q, const AttentionSetup& setup);

/// Computes bf16 tiles around oneDNN's small matmuls (attention/tiles.hpp).
AttentionForward tiles_forward;
AttentionBackward tiles_backward;

/// Returns true if this CPU has AVX-512, q is fp32 or its products are
/// widened to fp32, and the shapes fit as for tiles_apply(), with D a multiple of 16.
bool fp32_tiles_apply(const at::Tensor& q, const AttentionSetup& setup);

/// Computes the same tiles in fp32. Inputs in bf16 are widened when a tile is loaded.
AttentionForward fp32_tiles_forward;
AttentionBackward fp32_tiles_backward;

/// Returns true on compute capability 8.0 and later, if D is a multiple of 8 and at most 256.
bool flash_applies(const at::Tensor& q, const AttentionSetup& setup);

/// Uses ATen's flash attention through varlen.
AttentionForward flash_forward;
AttentionBackward flash_backward;

/// Returns the dtype of out and gradients.
inline at::ScalarType result_type(const at::Tensor& q, const AttentionSetup& setup) {
  return setup.wide ? accumulate_type(q) : q.scalar_type();
}

/// Returns uninitialized outputs for queries q: out in result_type(), lse in fp32.
AttentionOutput empty_output(const at::Tensor& q, const AttentionSetup& setup);

/// Sums gradients [B, H, T, D] of repeat_heads over each group: [B, num_kv_heads, T, D] in `type`.
at::Tensor sum_groups(const at::Tensor& grad, std::int64_t num_kv_heads, at::ScalarType type);

/// Repeats every key head for each query head of its group.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads);

/// Returns [B, H, T, D] as a view of contiguous [B, T, H, D].
at::Tensor tokens_first(const at::Tensor& x);

/// Returns [queries, keys] bool for the queries and keys() of a part: true if a query sees a key.
at::Tensor seen_keys(const QueryPart& part);

}  // namespace trireme::ops
