#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/embedding.hpp"

/// The gradient of an embedding table. ops/embedding.cpp has the table of implementations.
namespace trireme::ops::cuda {

inline constexpr KernelOf<EmbeddingGradient> kEmbeddingSegments{
    {"embedding_segments", "embedding", "EmbeddingGradient"}};
inline constexpr KernelOf<EmbeddingGradient> kEmbeddingRuns{
    {"embedding_runs", "embedding", "EmbeddingGradient", 256, /*fp32_only=*/true}};
inline constexpr std::array<const Kernel*, 2> kEmbeddingKernels{&kEmbeddingSegments,
                                                                &kEmbeddingRuns};

bool accepts_embedding(const at::Tensor& table, const at::Tensor& grads);

/// Computes ops::add_embedding_gradient for an fp32 table. Equal arguments give equal bits.
void add_embedding_gradient(const at::Tensor& table, const at::Tensor& index,
                            const at::Tensor& grads);

}  // namespace trireme::ops::cuda
