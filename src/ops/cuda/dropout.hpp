#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/dropout.hpp"
#include "ops/dropout.hpp"

/// Dropout with the masks of the other rows of the table in ops/dropout.cpp.
namespace trireme::ops::cuda {

inline constexpr KernelOf<Dropout> kDropout{{"dropout", "dropout", "Dropout"}};
inline constexpr std::array<const Kernel*, 1> kDropoutKernels{&kDropout};

bool accepts_dropout(const at::Tensor& x);

at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask);

}  // namespace trireme::ops::cuda
