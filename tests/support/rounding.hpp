#pragma once
#include <cmath>
#include <vector>

#include "parallel/param_registry.hpp"

/// Bounds for the rounding errors of a training run in fp32 or bf16.
///
/// An error is a relative distance |x - x64| / |x64|. u is the unit roundoff: 2^-24 in fp32 and
/// 2^-8 in bf16. The forward pass of a block stores 11 tensors (norm, qkv, rotated heads,
/// attention, its projection, sum, norm, gate and up, SwiGLU, down, sum) and reads 4 matrices that
/// were rounded once; the backward pass does as many. The embedding, the last norm, the logits and
/// their gradient add 4. So a gradient has been rounded R = 2 (15 L + 4) times.
///
/// Roundings to nearest are independent with mean 0, so their squares add: the error grows as
/// sqrt(R), not as R. A bound linear in depth would hide a wrong term. In fp32, the sums of matrix
/// products round as well. H terms of random sign, added one by one, give sqrt(H / 2) u, which
/// makes u sqrt(R (1 + H / 2)) in total. In bf16, products are summed in fp32, which is 2^16 times
/// finer, so the sums count nothing. The gradients of queries and keys are differences of similar
/// numbers (softmax and norm subtract the mean). They are up to kCondition times less exact than
/// their inputs.
namespace trireme::testing {

struct Precision {
  const char* name;
  device::ParamDTypes dtypes;
  double roundoff;
  bool narrow_sums;  // matrix products are summed in this precision
};

inline const Precision kFp32{"fp32", {at::kFloat, at::kFloat}, 0x1p-24, true};
inline const Precision kBf16{"bf16", {at::kBFloat16, at::kFloat}, 0x1p-8, false};

/// Returns R for a model with `layers` blocks.
inline double num_roundings(std::int64_t num_layers) {
  return 2.0 * (15.0 * static_cast<double>(num_layers) + 4.0);
}

/// Returns the error of a gradient that was rounded `roundings` times in a model of that width.
inline double rounding_error(double roundings, std::int64_t hidden_size,
                             const Precision& precision) {
  constexpr double kCondition = 3;
  const double of_sums = precision.narrow_sums ? static_cast<double>(hidden_size) / 2 : 0;
  return kCondition * precision.roundoff * std::sqrt(roundings * (1 + of_sums));
}

inline double root_of_squares(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const at::Tensor& x : tensors) sum += x.to(at::kDouble).square().sum().item<double>();
  return std::sqrt(sum);
}

}  // namespace trireme::testing
