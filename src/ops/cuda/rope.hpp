#pragma once
#include <array>
#include <utility>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/rope.hpp"
#include "ops/rope.hpp"

/// The cuda row of ops/rope.cpp.
namespace trireme::ops::cuda {

inline constexpr KernelOf<Heads> kHeadsForward{{"heads_forward", "rope", "Heads"}};
inline constexpr KernelOf<Heads> kHeadsBackward{{"heads_backward", "rope", "Heads"}};
inline constexpr std::array<const Kernel*, 2> kRopeKernels{&kHeadsForward, &kHeadsBackward};

/// Returns true for q [B, T, H, D] with D up to 1024.
bool accepts_rope(const at::Tensor& q);
std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k,
                                       const QkNormRope& setup);
std::pair<at::Tensor, at::Tensor> rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                                const at::Tensor& q, const at::Tensor& k,
                                                const QkNormRope& setup, const at::Tensor& slot_q,
                                                const at::Tensor& slot_k);

}  // namespace trireme::ops::cuda
