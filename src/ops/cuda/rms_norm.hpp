#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/rms_norm.hpp"
#include "ops/rms_norm.hpp"

/// The cuda row of ops/rms_norm.cpp.
namespace trireme::ops::cuda {

inline constexpr KernelOf<RmsNormForward> kRmsNormForward{
    {"rms_norm_forward", "rms_norm", "RmsNormForward"}};
inline constexpr KernelOf<RmsNormBackward> kRmsNormBackward{
    {"rms_norm_backward", "rms_norm", "RmsNormBackward"}};
inline constexpr std::array<const Kernel*, 2> kRmsNormKernels{&kRmsNormForward, &kRmsNormBackward};

bool accepts_norm(const at::Tensor& x);
AddRmsNormOutput norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                      double eps);
RmsNormGrads norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                           const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                           bool want_y = false);

}  // namespace trireme::ops::cuda
