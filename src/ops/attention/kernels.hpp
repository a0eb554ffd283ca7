#pragma once
#include <limits>

#include "ops/attention.hpp"

/// The ways to compute attention; ops/attention.cpp picks one by device, dtype and shape. Arguments
/// are checked. Private.
namespace trireme::ops {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Scores as one matrix and ATen's elementwise operations: every device and dtype, the oracle.
AttentionOutput plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup);
AttentionGrads plain_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup);

/// ATen's CPU kernel, one call for what queries see before their own places, one for the diagonal.
AttentionOutput aten_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup);
AttentionGrads aten_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOutput& forward,
                             const AttentionSetup& setup);

/// True if this CPU multiplies bf16 natively and the shapes fit: D a multiple of 32, at most 256.
/// False for fewer than 16 queries whose places are given: the single query of a decode would fill
/// one of a tile's 64 columns.
bool tiles_apply(const at::Tensor& q, const AttentionSetup& setup);

/// Tiles of bf16 around oneDNN's small matmuls: attention/tiles.hpp.
AttentionOutput tiles_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup);
AttentionGrads tiles_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup);

/// True on compute capability 8.0 and later, for D a multiple of 8, at most 256, without a window.
/// ATen's flash attention takes windows by arguments that varlen does not pass yet.
bool flash_applies(const at::Tensor& q, const AttentionSetup& setup);

/// ATen's flash attention through varlen.
AttentionOutput flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup);
AttentionGrads flash_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup);

/// The type of out and of gradients.
inline at::ScalarType result_type(const at::Tensor& q, const AttentionSetup& setup) {
  return setup.wide ? accumulate_type(q) : q.scalar_type();
}

/// Returns uninitialized outputs for queries q: out in result_type(), lse in fp32.
AttentionOutput empty_output(const at::Tensor& q, const AttentionSetup& setup);

/// Sums the gradients [B, H, T, D] of repeat_heads over each group: [B, num_kv_heads, T, D] in `type`.
at::Tensor sum_groups(const at::Tensor& grad, std::int64_t num_kv_heads, at::ScalarType type);

/// Every key head once per query head of its group.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads);

/// [B, H, T, D] as a view of contiguous [B, T, H, D].
at::Tensor tokens_first(const at::Tensor& x);

/// [queries, keys] bool of a part and the interval of keys that it sees, true where a query sees a
/// key.
at::Tensor seen_keys(const QueryPart& part);

}  // namespace trireme::ops
