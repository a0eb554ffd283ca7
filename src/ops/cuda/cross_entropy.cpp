#include "ops/cuda/cross_entropy.hpp"

#include <ATen/ATen.h>

namespace trireme::ops::cuda {
namespace {

Launch block_per_row(const at::Tensor& logits) {
  return {logits.size(0), threads_for_row(logits.size(1), logits, kLogitThreads)};
}

const float* floats_or_null(const at::Tensor& x) {
  return static_cast<const float*>(data_or_null(x));
}

}  // namespace

bool accepts_cross_entropy(const at::Tensor& x) {
  return accepts(x, {&kCrossEntropy, &kClassStatistics, &kClassGradient});
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& row_weights, const at::Tensor& losses, double grad_scale,
                   bool want_grads) {
  launch(kCrossEntropy, logits, block_per_row(logits),
         {.logits = logits.data_ptr(),
          .targets = targets.const_data_ptr<std::int64_t>(),
          .row_weights = floats_or_null(row_weights),
          .losses = losses.mutable_data_ptr<float>(),
          .width = logits.size(1),
          .grad_scale = static_cast<float>(grad_scale),
          .want_grads = want_grads});
}

at::Tensor class_statistics(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t first) {
  const std::int64_t rows = logits.size(0);
  at::Tensor statistics = at::empty({3, rows}, logits.options().dtype(at::kFloat));
  auto* const numbers = statistics.mutable_data_ptr<float>();
  launch(kClassStatistics, logits, block_per_row(logits),
         {.logits = logits.const_data_ptr(),
          .targets = targets.const_data_ptr<std::int64_t>(),
          .largest = numbers,
          .sums = numbers + rows,
          .target_logits = numbers + 2 * rows,
          .first = first,
          .width = logits.size(1)});
  return statistics;
}

void class_gradient(const at::Tensor& logits, const at::Tensor& targets,
                    const at::Tensor& row_weights, const at::Tensor& largest,
                    const at::Tensor& sums, std::int64_t first, double grad_scale) {
  launch(kClassGradient, logits, block_per_row(logits),
         {.logits = logits.data_ptr(),
          .targets = targets.const_data_ptr<std::int64_t>(),
          .row_weights = floats_or_null(row_weights),
          .largest = largest.const_data_ptr<float>(),
          .sums = sums.const_data_ptr<float>(),
          .first = first,
          .width = logits.size(1),
          .grad_scale = static_cast<float>(grad_scale)});
}

}  // namespace trireme::ops::cuda
