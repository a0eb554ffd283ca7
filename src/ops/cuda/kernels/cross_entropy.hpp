#pragma once
#include <cstdint>

/// Arguments of the kernels in cross_entropy.cu. Rows of logits are contiguous. Each row has one
/// block.
namespace trireme::ops::cuda {

/// cross_entropy: the logits of a row hold all classes.
struct CrossEntropy {
  void* logits;                 // [rows, width]; with want_grads, the gradient overwrites them
  const std::int64_t* targets;  // [rows]; negative: the row has no loss
  const float* row_weights;     // [rows], factors of the gradient; null: 1
  float* losses;                // [rows], without the row weights
  std::int64_t width;
  float grad_scale;
  const double* device_grad_scale;  // one value that replaces grad_scale; null: grad_scale
  bool want_grads;
};

/// class_statistics: the logits of a row hold the classes [first, first + width).
struct ClassStatistics {
  const void* logits;
  const std::int64_t* targets;  // [rows], global classes
  float* largest;               // [rows]
  float* sums;                  // [rows]: sum of exp(logit - largest)
  float* target_logits;         // [rows]; 0 if the target is not one of these classes
  std::int64_t first;
  std::int64_t width;
};

/// class_gradient: overwrites the logits with the gradient.
struct ClassGradient {
  void* logits;
  const std::int64_t* targets;
  const float* row_weights;  // null: 1
  const float* largest;      // [rows], over all classes
  const float* sums;         // [rows], over all classes
  std::int64_t first;
  std::int64_t width;
  float grad_scale;
  const double* device_grad_scale;  // one value that replaces grad_scale; null: grad_scale
};

}  // namespace trireme::ops::cuda
