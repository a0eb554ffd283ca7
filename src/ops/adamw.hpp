#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// AdamW in one pass over memory. optim/adamw.hpp describes the optimizer.
namespace trireme::ops {

/// Contiguous elements of equal length with one weight decay.
struct AdamWTensors {
  at::Tensor weights;  // fp32, like the gradients and both averages
  at::Tensor grads;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor copy;  // receives the weights, rounded to its dtype; undefined: none
  double decay = 0;
};

struct AdamWNumbers {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  std::int64_t update = 1;  // number of the update, for the bias corrections
};

/// The numbers of all elements of an update, in fp32.
struct AdamWRates {
  explicit AdamWRates(const AdamWNumbers& numbers);

  float rate1;         // 1 - beta1
  float rate2;         // 1 - beta2
  float step_size;     // lr / (1 - beta1^update)
  float inverse_root;  // 1 / sqrt(1 - beta2^update)
  float eps;
};

/// Returns true if adamw() accepts the tensors of a piece: fp32 weights, and a copy in fp32 or bf16
/// on the same CPU, or in a dtype that this GPU has the kernel for.
bool accepts_adamw(const AdamWTensors& piece);

/// Multiplies the gradients by `factor`, an fp32 scalar on their device, updates weights and
/// averages, and writes the copies. The gradients do not change. If the factor is not finite,
/// nothing changes. All copies must have one dtype. On a GPU, the host does not wait. The bits do
/// not depend on where a piece begins or on the number of threads.
void adamw(const std::vector<AdamWTensors>& pieces, const AdamWNumbers& numbers,
           const at::Tensor& factor);

}  // namespace trireme::ops
