#pragma once
#include "ops/attention.hpp"

/// The ways to compute attention; ops/attention.cpp picks one by device, dtype and shape. Arguments
/// are checked. Private.
namespace trireme::ops {

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

/// The type of out and of gradients.
inline at::ScalarType result_type(const at::Tensor& q, const AttentionSetup& setup) {
  return setup.wide ? accumulate_type(q) : q.scalar_type();
}

/// Every key head once per query head of its group.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads);

/// [B, H, T, D] as a view of contiguous [B, T, H, D].
at::Tensor tokens_first(const at::Tensor& x);

}  // namespace trireme::ops
