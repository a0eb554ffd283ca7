#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/gated_activation.hpp"
#include "ops/gated_activation.hpp"

/// The cuda row of ops/gated_activation.cpp.
namespace trireme::ops::cuda {

inline constexpr KernelOf<GatedForward> kGatedForward{
    {"gated_forward", "gated_activation", "GatedForward"}};
inline constexpr KernelOf<GatedBackward> kGatedBackward{
    {"gated_backward", "gated_activation", "GatedBackward"}};
inline constexpr std::array<const Kernel*, 2> kGatedActivationKernels{&kGatedForward,
                                                                      &kGatedBackward};

bool accepts_gated(const at::Tensor& gate_up);
at::Tensor gated(const at::Tensor& gate_up, Activation activation);
at::Tensor gated_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                          Activation activation, at::Tensor* y = nullptr);

}  // namespace trireme::ops::cuda
