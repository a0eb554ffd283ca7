#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/grad_norm.hpp"

/// The gradient norm on a GPU. optim/block_squares.cpp has the table, optim/grad_norm.hpp describes
/// the norm.
namespace trireme::ops::cuda {

inline constexpr KernelOf<BlockSquares> kBlockSquares{
    {"block_squares", "grad_norm", "BlockSquares", kSquaresThreads, /*fp32_only=*/true}};
inline constexpr KernelOf<AddWords> kAddWords{
    {"add_words", "grad_norm", "AddWords", kWordGroups* kWordThreads, /*fp32_only=*/true}};
inline constexpr KernelOf<ClipFactor> kClipFactor{
    {"clip_factor", "grad_norm", "ClipFactor", 32, /*fp32_only=*/true}};
inline constexpr std::array<const Kernel*, 3> kGradNormKernels{&kBlockSquares, &kAddWords,
                                                               &kClipFactor};

/// Returns true if grads is an fp32 tensor on a GPU that has the kernels.
bool accepts_grad_norm(const at::Tensor& grads);

/// Computes optim::add_block_squares for contiguous fp32 gradients.
void add_block_squares(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words);

/// Returns the factor on all gradients, an fp32 scalar on the device of the words: 1 / loss_scale,
/// times clip_norm / norm if that is below 1. The factor is NaN if the words have a count of values
/// that are not finite. clip_norm 0: no clipping. The host does not wait.
at::Tensor clip_factor(const at::Tensor& words, double clip_norm, double loss_scale);

}  // namespace trireme::ops::cuda
