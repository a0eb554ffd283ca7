#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/path.hpp"

/// Output projection and cross entropy in one operation. The logits exist only for `chunk_rows`
/// rows at a time; their gradient is contracted at once, so the cost of backward is paid in forward
/// and nothing of size [N, V] survives.
namespace trireme::ops {

inline constexpr std::int64_t kIgnoredTarget = -100;

struct LinearCrossEntropySetup {
  /// Factor folded into the gradients before they are rounded to x's dtype, for example loss scale
  /// / global token count. loss_sum does not contain it.
  double grad_scale = 1.0;
  std::int64_t chunk_rows = 1024;
  bool want_grads = true;
  at::Tensor row_weights{};      // [N] fp32 (fp64 for fp64): of each row's loss; undefined: all 1
  bool want_grad_weight = true;  // with want_grads; false for a head that is frozen
};

struct LinearCrossEntropyOutput {
  /// Scalar, fp32 or fp64: sum over valid targets of -row weight * log softmax(x W^T)[target].
  at::Tensor loss_sum;
  at::Tensor grad_x;       // [N, D], x's dtype: grad_scale * d loss_sum / dx, with want_grads
  at::Tensor grad_weight;  // [V, D], fp32 or fp64: grad_scale * d loss_sum / dW, where wanted
};

/// What a model says of each target, without gradients.
struct TokenScores {
  at::Tensor log_probs;  // [N] fp64: log softmax(x W^T)[target], 0 where the target is ignored
  at::Tensor correct;    // [N] bool: the target is the likeliest class (of equals the first)
};

struct TokenScoresSetup {
  std::int64_t chunk_rows = 1024;
  bool want_correct = false;
};

/// Throws Error(data) for a target outside [0, classes) that is not kIgnoredTarget. Waits for a GPU.
void check_targets(const at::Tensor& targets, std::int64_t classes);

/// x [N, D], weight [V, D] of one dtype, targets [N] int64 with kIgnoredTarget for rows without a
/// loss. The log-softmax is in fp32 (fp64 for fp64). Weight gradients of all chunks are summed in
/// fp32. Throws Error(data) for a target outside [0, V) (CPU tensors), Error(internal) if shapes do
/// not fit.
LinearCrossEntropyOutput linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& targets,
                                              const LinearCrossEntropySetup& setup = {},
                                              Path path = Path::fast);

/// Compares two models, or one with itself, row by row: the same arguments give the same bits.
/// Arguments and errors as above.
TokenScores token_scores(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         const TokenScoresSetup& setup = {}, Path path = Path::fast);

}  // namespace trireme::ops
