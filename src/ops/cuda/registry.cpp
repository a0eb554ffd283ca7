#include <array>

#include "ops/cuda/column_sums.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/cuda/kernel.hpp"
#include "ops/cuda/rms_norm.hpp"

namespace trireme::ops::cuda {

std::span<const Kernel* const> all_kernels() {
  static constexpr std::array<const Kernel*, 6> kKernels{&kRmsNormForward,  &kRmsNormBackward,
                                                         &kColumnSums,      &kCrossEntropy,
                                                         &kClassStatistics, &kClassGradient};
  return kKernels;
}

}  // namespace trireme::ops::cuda
