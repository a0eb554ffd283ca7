#pragma once
#include "ops/attention/kernels.hpp"

/// Attention of bf16 tensors on a CPU, tile by tile, around oneDNN's small matmuls (bf16 in, fp32
/// out). Private. Of one head of one document, D wide, in tiles of 64 keys and 64 queries:
///
///   for each tile Q of queries:                           m = -inf, l = 0, O = 0
///     for each tile K, V of keys up to the diagonal:      S = K Q^T                  [keys, queries]
///       m' = max(m, max over keys of S); P = exp(S - m')  masked keys: P = 0
///       r = exp(m - m'); l = l r + sum over keys of P     m = m'
///       O = O r + V^T P                                   [D, queries]
///     out = (O / l)^T, lse = m + log l                    what backward needs of the softmax
///   backward, again for each Q and each K, V:             P = exp(S - lse)
///     dV += P dO;  dS = P (V dO^T - rowsum(dO out));  dK += dS Q;  dQ += dS^T K
///
/// S and P are transposed, keys down and queries across: a query's statistics then lie along the
/// vector lanes, and P leaves the softmax in the layout that the next matmul reads. Nothing of size
/// Tq x Tk is kept, tiles above the diagonal and of other documents are never computed, and a key
/// head's keys are put in order of place once for every query head of its group. Source: Dao et al., "FlashAttention",
/// NeurIPS 2022, for the online softmax and the recomputation in backward.
namespace trireme::ops {

/// True if this CPU multiplies bf16 natively and the shapes fit: D a multiple of 32, at most 256.
/// A single query of a decode would fill one of a tile's 64 columns: not for fewer than 16 queries
/// whose places are given.
bool tiles_apply(const at::Tensor& q, const AttentionSetup& setup);

AttentionOutput tiles_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup);
AttentionGrads tiles_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup);

}  // namespace trireme::ops
