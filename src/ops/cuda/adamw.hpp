#pragma once
#include <array>
#include <vector>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/adamw.hpp"

/// AdamW in one pass over memory. optim/adamw.hpp describes the optimizer.
namespace trireme::ops::cuda {

inline constexpr KernelOf<AdamWUpdate> kAdamW{{"adamw", "adamw", "AdamWUpdate"}};
inline constexpr std::array<const Kernel*, 1> kAdamwKernels{&kAdamW};

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

/// Returns true if the weights are fp32 on a GPU that has the kernel for the copy's dtype.
bool accepts_adamw(const at::Tensor& weights, const at::Tensor& copy);

/// Multiplies the gradients by `factor`, an fp32 scalar on the device, updates weights and
/// averages, and writes the copies. The gradients do not change. If the factor is not finite,
/// nothing changes. All copies must have one dtype.
void adamw(const std::vector<AdamWTensors>& pieces, const AdamWNumbers& numbers,
           const at::Tensor& factor);

}  // namespace trireme::ops::cuda
