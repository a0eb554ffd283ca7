#pragma once
#include <array>
#include <vector>

#include "ops/adamw.hpp"
#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/adamw.hpp"

/// AdamW in one pass on a GPU. ops/adamw.cpp has the table.
namespace trireme::ops::cuda {

inline constexpr KernelOf<AdamWUpdate> kAdamW{{"adamw", "adamw", "AdamWUpdate"}};
inline constexpr std::array<const Kernel*, 1> kAdamwKernels{&kAdamW};

/// Returns true if the weights are fp32 on a GPU that has the kernel for the copy's dtype.
bool accepts_adamw(const AdamWTensors& piece);

/// Computes ops::adamw.
void adamw(const std::vector<AdamWTensors>& pieces, const AdamWNumbers& numbers,
           const at::Tensor& factor);

}  // namespace trireme::ops::cuda
