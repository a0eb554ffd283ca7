#include "ops/cuda/cross_entropy.hpp"

#include <ATen/ATen.h>

namespace trireme::ops::cuda {
namespace {

Launch block_per_row(const at::Tensor& logits) {
  return {logits.size(0), threads_for_row(logits.size(1), logits, kLogitThreads)};
}

}  // namespace

bool accepts_cross_entropy(const at::Tensor& x) {
  return accepts(x, {&kCrossEntropy, &kClassStatistics, &kClassGradient});
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& row_weights, const at::Tensor& losses,
                   const GradScale& grad_scale, bool want_grads) {
  launch(kCrossEntropy, logits, block_per_row(logits),
         {.logits = data_or_null(logits),
          .targets = data_of<std::int64_t>(targets),
          .row_weights = data_of<float>(row_weights),
          .losses = data_of<float>(losses),
          .width = logits.size(1),
          .grad_scale = static_cast<float>(grad_scale.value),
          .device_grad_scale = data_of<double>(grad_scale.on_device),
          .want_grads = want_grads});
}

at::Tensor class_statistics(const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t first) {
  at::Tensor statistics = at::empty({3, logits.size(0)}, logits.options().dtype(at::kFloat));
  launch(kClassStatistics, logits, block_per_row(logits),
         {.logits = data_or_null(logits),
          .targets = data_of<std::int64_t>(targets),
          .largest = data_of<float>(statistics[0]),
          .sums = data_of<float>(statistics[1]),
          .target_logits = data_of<float>(statistics[2]),
          .first = first,
          .width = logits.size(1)});
  return statistics;
}

void class_gradient(const at::Tensor& logits, const at::Tensor& targets,
                    const at::Tensor& row_weights, const at::Tensor& largest,
                    const at::Tensor& sums, std::int64_t first, const GradScale& grad_scale) {
  launch(kClassGradient, logits, block_per_row(logits),
         {.logits = data_or_null(logits),
          .targets = data_of<std::int64_t>(targets),
          .row_weights = data_of<float>(row_weights),
          .largest = data_of<float>(largest),
          .sums = data_of<float>(sums),
          .first = first,
          .width = logits.size(1),
          .grad_scale = static_cast<float>(grad_scale.value),
          .device_grad_scale = data_of<double>(grad_scale.on_device)});
}

}  // namespace trireme::ops::cuda
