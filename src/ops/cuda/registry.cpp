#include <array>

#include "ops/cuda/adamw.hpp"
#include "ops/cuda/column_sums.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/cuda/dropout.hpp"
#include "ops/cuda/embedding.hpp"
#include "ops/cuda/gated_activation.hpp"
#include "ops/cuda/grad_norm.hpp"
#include "ops/cuda/kernel.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope.hpp"

namespace trireme::ops::cuda {

std::span<const Kernel* const> all_kernels() {
  static constexpr std::array<const Kernel*, 17> kKernels{
      &kAdamW,          &kAddWords,      &kBlockSquares,      &kClipFactor,
      &kColumnSums,     &kCrossEntropy,  &kClassStatistics,   &kClassGradient,
      &kDropout,        &kEmbeddingRuns, &kEmbeddingSegments, &kGatedForward,
      &kGatedBackward,  &kHeadsForward,  &kHeadsBackward,     &kRmsNormForward,
      &kRmsNormBackward};
  return kKernels;
}

}  // namespace trireme::ops::cuda
