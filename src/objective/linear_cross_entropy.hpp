#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/path.hpp"

/// Output projection and cross entropy in one operation. The logits exist only for `chunk_rows`
/// rows at a time. Their gradient is contracted at once, in forward, so no [N, V] tensor is kept.
namespace trireme::objective {

inline constexpr std::int64_t kIgnoredTarget = -100;

struct LinearCrossEntropySetup {
  /// Factor multiplied into the gradients before they are rounded to x's dtype, for example loss
  /// scale / global token count. loss_sum does not include it.
  double grad_scale = 1.0;
  /// Replaces grad_scale if it is defined: a scalar, fp64, on the device. A captured CUDA graph
  /// reads it at each launch.
  at::Tensor device_grad_scale{};
  std::int64_t chunk_rows = 1024;
  bool want_grads = true;
  at::Tensor row_weights{};      // [N] fp32 or fp64: weight of each row's loss; undefined: 1
  bool want_grad_weight = true;  // only with want_grads; false for a frozen head
  bool targets_checked = false;  // true if the caller has called check_targets()
  double softcap = 0;            // logits l become c * tanh(l / c); 0: unchanged
};

struct LinearCrossEntropyOutput {
  /// Scalar, fp32 or fp64: the sum over valid targets of -row weight * log softmax(x W^T)[target].
  at::Tensor loss_sum;
  at::Tensor grad_x;       // [N, D], x's dtype: grad_scale * d loss_sum / dx; only with want_grads
  at::Tensor grad_weight;  // [V, D], fp32 or fp64: grad_scale * d loss_sum / dW; only if wanted
};

/// The model's predictions for each target, without gradients.
struct TokenScores {
  at::Tensor log_probs;  // [N] fp64: log softmax(x W^T)[target]; 0 for ignored targets
  at::Tensor correct;    // [N] bool: the target has the largest logit (the first, if equal)
};

struct TokenScoresSetup {
  std::int64_t chunk_rows = 1024;
  bool want_correct = false;
  bool targets_checked = false;  // true if the caller has called check_targets()
  double softcap = 0;            // like that of LinearCrossEntropySetup
};

/// Multiplies `values` by the gradient scale of the setup, in place.
void scale_gradient(const at::Tensor& values, const LinearCrossEntropySetup& setup);

/// Replaces logits by c * tanh(logits / c) in place. Returns the derivative if `want_slope`.
at::Tensor cap_logits(const at::Tensor& logits, double softcap, bool want_slope);

/// Throws Error(data) if a target is neither in [0, classes) nor kIgnoredTarget. Waits for a GPU.
void check_targets(const at::Tensor& targets, std::int64_t classes);
[[noreturn]] void fail_target(std::int64_t target, std::int64_t classes);

/// Computes the loss of x [N, D] with weight [V, D] of the same dtype and targets [N] int64; rows
/// with kIgnoredTarget have no loss. The log-softmax is in fp32 (fp64 for fp64). Weight gradients
/// of all chunks are summed in fp32. Throws Error(data) for a target outside [0, V),
/// Error(internal) if shapes do not match.
LinearCrossEntropyOutput linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& targets,
                                              const LinearCrossEntropySetup& setup = {},
                                              ops::Path path = ops::Path::fast);

/// Computes the log-probability of each target, to compare models row by row: equal arguments give
/// equal bits. Arguments and errors are those of linear_cross_entropy.
TokenScores token_scores(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         const TokenScoresSetup& setup = {}, ops::Path path = ops::Path::fast);

}  // namespace trireme::objective
