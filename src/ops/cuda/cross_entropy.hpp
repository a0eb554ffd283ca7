#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/cross_entropy.hpp"

/// Cross entropy of logits, with the gradient in place. objective/linear_cross_entropy.cpp and
/// objective/vocab_chunk.cpp have the rows of the tables. A target below 0 has no loss; its
/// gradient is zero.
namespace trireme::ops::cuda {

inline constexpr int kLogitThreads = 512;  // per row

inline constexpr KernelOf<CrossEntropy> kCrossEntropy{
    {"cross_entropy", "cross_entropy", "CrossEntropy", kLogitThreads}};
inline constexpr KernelOf<ClassStatistics> kClassStatistics{
    {"class_statistics", "cross_entropy", "ClassStatistics", kLogitThreads}};
inline constexpr KernelOf<ClassGradient> kClassGradient{
    {"class_gradient", "cross_entropy", "ClassGradient", kLogitThreads}};
inline constexpr std::array<const Kernel*, 3> kCrossEntropyKernels{
    &kCrossEntropy, &kClassStatistics, &kClassGradient};

/// The factor of gradients: `value`, or the fp64 scalar `on_device` if it is defined.
struct GradScale {
  double value = 1;
  at::Tensor on_device{};
};

bool accepts_cross_entropy(const at::Tensor& x);

/// Writes the unweighted losses [rows] fp32 of contiguous logits [rows, classes] with targets [rows]
/// int64. If `want_grads`, overwrites the logits with grad_scale * row weight * d loss / d logits.
/// row_weights [rows] fp32; undefined: 1.
void cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& row_weights, const at::Tensor& losses,
                   const GradScale& grad_scale, bool want_grads);

/// Returns [3, rows] fp32 for logits of the classes [first, first + width): their maximum, the sum
/// of exp(logit - maximum), and the target's logit, 0 if the target is another class.
at::Tensor class_statistics(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t first);

/// Like the gradient of cross_entropy, for logits of the classes [first, first + width). `largest`
/// and `sums` [rows] are over all classes.
void class_gradient(const at::Tensor& logits, const at::Tensor& targets,
                    const at::Tensor& row_weights, const at::Tensor& largest,
                    const at::Tensor& sums, std::int64_t first, const GradScale& grad_scale);

}  // namespace trireme::ops::cuda
