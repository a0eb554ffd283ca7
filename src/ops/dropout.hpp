#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/path.hpp"

/// Dropout whose mask is a pure function of (key, step, layer, op, global sample index, position,
/// global feature), so it is the same for every split of batch, sequence or features, for
/// recomputation and after resume.
namespace trireme::ops {

struct DropoutMask {
  double p = 0.0;          // chance to drop, in [0, 1)
  std::uint64_t key = 0;   // philox_key(seed, purpose)
  std::uint64_t step = 0;  // optimizer step
  std::uint32_t layer = 0;
  std::uint32_t op = 0;            // which dropout of the layer
  std::int64_t first_feature = 0;  // global index of x's first feature
  at::Tensor samples;              // [B] int64, global sample index
  at::Tensor positions;            // [B, T] int64, in [0, 2^32)
};

/// Key of one (step, layer, op): two words of the Philox counter at counter (step, layer, op).
std::uint64_t dropout_key(const DropoutMask& mask);

/// x [B, T, F] -> x * kept / (1 - p). Element (b, t, f) uses word f % 4 of the Philox counter with
/// counter low = position << 32 | f / 4, high = sample, and is kept if the word is at least p *
/// 2^32. The backward of dropout is the same call on the gradient. Throws Error(usage) if p is
/// outside [0, 1), Error(internal) if shapes do not fit.
at::Tensor dropout_apply(const at::Tensor& x, const DropoutMask& mask, Path path = Path::fast);

/// With autograd.
at::Tensor dropout_philox(const at::Tensor& x, const DropoutMask& mask, Path path = Path::fast);

}  // namespace trireme::ops
