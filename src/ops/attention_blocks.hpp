#pragma once
#include "ops/attention.hpp"

/// Attention of bf16 tensors on a CPU, block by block, around oneDNN's small matmuls
/// (bf16 in, fp32 out). Private.
///
/// Scores are computed transposed, keys down and queries across: a query's statistics
/// then lie along the vector lanes, and weights leave the softmax in the layout that the
/// next matmul reads. Nothing of size T x T is kept, causal blocks above the diagonal
/// and blocks of other documents are never computed, and key heads are read in place by
/// every query head of their group. Source: Dao et al., "FlashAttention", NeurIPS 2022,
/// for the online softmax and the recomputation in backward.
namespace trireme::ops {

/// True if this CPU multiplies bf16 natively and the shapes fit: D a multiple of 32, at most 256.
bool blocks_apply(const at::Tensor& q);

AttentionOutput blocks_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionSetup& setup);
AttentionGrads blocks_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOutput& forward,
                               const AttentionSetup& setup);

}  // namespace trireme::ops
