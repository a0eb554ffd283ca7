#pragma once
#include <functional>
#include <vector>

#include "ops/attention/kernels.hpp"

/// Attention of a GPU: documents as sequences of many lengths in one kernel call, no [Tq, Tk] mask.
///
///   q, k, v as tokens [B T, heads, D] -> gathered in the order of the sequences (as they lie, where
///   that is the order) -> kernel(offsets of every sequence's queries and keys) -> put back
///
/// One call takes the queries with a diagonal (query i of n sees all keys but the last n - 1 - i),
/// one the others; queries without keys are in neither. Windows are not supported. Source of the form: cu_seqlens of Dao's
/// flash-attention, https://github.com/Dao-AILab/flash-attention. Private.
namespace trireme::ops {

struct VarlenCall {
  bool causal;
  std::vector<std::int32_t> query_offsets{0};  // sequence s: queries offsets[s] .. offsets[s + 1]
  std::vector<std::int32_t> key_offsets{0};
  std::int64_t longest_queries = 0;
  std::int64_t longest_keys = 0;
  std::vector<TokenRange> queries;  // tokens of [B Tq], in the order of the sequences
  std::vector<TokenRange> keys;     // of [B Tk]; a key read by two sequences is in twice
};

/// At most two calls.
std::vector<VarlenCall> varlen_calls(const AttentionPlan& plan, std::int64_t batch,
                                     std::int64_t num_queries, std::int64_t num_keys);

/// The two functions of a kernel; q, out [tokens, H, D], k, v [tokens, Hk, D], lse [H, tokens].
struct VarlenKernel {
  std::function<AttentionOutput(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const VarlenCall& call, double scale)>
      forward;
  std::function<AttentionGrads(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOutput& forward,
                               const VarlenCall& call, double scale)>
      backward;
};

AttentionOutput varlen_forward(const VarlenKernel& kernel, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionSetup& setup);
AttentionGrads varlen_backward(const VarlenKernel& kernel, const at::Tensor& grad_out,
                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOutput& forward, const AttentionSetup& setup);

}  // namespace trireme::ops
