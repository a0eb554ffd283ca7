#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/path.hpp"

/// Dropout with a mask that is a pure function of (key, step, layer, op, global sample index,
/// position, global feature). The mask is the same for every split of batch, sequence or features,
/// in recomputation and after resume.
namespace trireme::ops {

struct DropoutMask {
  double p = 0.0;          // drop probability, in [0, 1)
  std::uint64_t key = 0;   // philox_key(seed, purpose)
  std::uint64_t step = 0;  // optimizer step
  std::uint32_t layer = 0;
  std::uint32_t op = 0;            // index of the dropout in its layer
  std::int64_t first_feature = 0;  // global index of x's first feature
  at::Tensor samples;              // [B] int64, global sample index
  at::Tensor positions;            // [B, T] int64, in [0, 2^32)
};

/// Returns the key of one (step, layer, op): two words of the Philox counter (step, layer, op).
std::uint64_t dropout_key(const DropoutMask& mask);

/// Returns the smallest word of a kept element, for a drop probability p.
std::uint32_t drop_threshold(double p);

/// Returns x [B, T, F] * kept / (1 - p). Element (b, t, f) uses word f % 4 of the Philox counter
/// with low = position << 32 | f / 4, high = sample; it is kept if the word is at least p * 2^32.
/// The backward is the same call on the gradient. Throws Error(usage) if p is outside [0, 1),
/// Error(internal) if shapes do not match.
at::Tensor dropout_apply(const at::Tensor& x, const DropoutMask& mask, Path path = Path::fast);

at::Tensor dropout_philox(const at::Tensor& x, const DropoutMask& mask, Path path = Path::fast);

}  // namespace trireme::ops
