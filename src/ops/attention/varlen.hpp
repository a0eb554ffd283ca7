#pragma once
#include <functional>
#include <vector>

#include "ops/attention/kernels.hpp"

/// Attention on a GPU: documents are variable-length sequences of one kernel call, without a mask.
///
///   q, k, v as tokens [B T, heads, D] -> gathered in sequence order, unless they are in order
///   -> kernel(offsets of the queries and keys of each sequence) -> scattered back
///
/// One call takes the queries with a diagonal (query i of n sees all but the last n - 1 - i keys),
/// another call all others; queries without keys are in neither. With a window, each
/// number of keys in a window (it varies only with context parallelism) needs its own call.
/// Layout: cu_seqlens of flash-attention, https://github.com/Dao-AILab/flash-attention. Private.
namespace trireme::ops {

struct VarlenCall {
  bool causal;
  // If it is not negative, query i of n sees only keys from m - n + i - window_left on, of m.
  std::int64_t window_left = -1;
  std::vector<std::int32_t> query_offsets{0};  // sequence s: offsets[s] .. offsets[s + 1]
  std::vector<std::int32_t> key_offsets{0};
  std::int64_t longest_queries = 0;
  std::int64_t longest_keys = 0;
  std::vector<TokenRange> queries{};  // tokens of [B Tq], in sequence order
  std::vector<TokenRange>
      keys{};  // tokens of [B Tk]; a key that two sequences read is listed twice

  // Set by copy_to_device(), on the device:
  at::Tensor query_starts{};  // query_offsets, int32
  at::Tensor key_starts{};    // key_offsets, int32
  at::Tensor query_tokens{};  // `queries` as an int64 index; undefined: all tokens in order
  at::Tensor key_tokens{};    // `keys` as an int64 index; undefined: all tokens in order
};

/// Returns one call for each combination of `causal` and `window_left`, causal calls first. Without
/// a window these are at most two.
std::vector<VarlenCall> varlen_calls(const AttentionPlan& plan, std::int64_t batch,
                                     std::int64_t num_queries, std::int64_t num_keys);

/// Uploads offsets and indices to `device`, without waiting. `total_queries`, `total_keys`: tokens
/// of [B Tq] and [B Tk].
void copy_to_device(VarlenCall& call, std::int64_t total_queries, std::int64_t total_keys,
                    at::Device device);

/// The two functions of a kernel. q, out [tokens, H, D]; k, v [tokens, Hk, D]; lse [H, tokens].
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
