#include "train/step/bucket_counts.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace trireme::train {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // limits the memory of the indices

/// Returns the bucket of each element, which is in fp32 or fp64.
at::Tensor buckets_of(const at::Tensor& values) {
  using Buckets = ExponentialBuckets;
  const bool is_double = values.scalar_type() == at::kDouble;
  const std::int64_t mantissa_bits = is_double ? 52 : 23;
  const std::int64_t bias = is_double ? 1023 : 127;
  const std::int64_t first = (bias + Buckets::kMinExponent) * Buckets::kPerOctave;
  const at::Tensor bits = values.abs().view(is_double ? at::kLong : at::kInt);
  // The exponent and the first two bits of the mantissa are one integer that grows with |x|.
  const at::Tensor magnitude = at::bitwise_right_shift(bits, mantissa_bits - 2)
                                   .to(at::kLong)
                                   .sub_(first - 1)
                                   .clamp_(0, Buckets::kPerSign);
  return at::where(values.lt(0), magnitude.neg(), magnitude).add_(Buckets::kPerSign);
}

}  // namespace

void count_in_buckets(const at::Tensor& values, double factor, const at::Tensor& counts) {
  const at::Tensor flat = values.reshape({-1});
  const at::ScalarType dtype = flat.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor one = at::ones({1}, counts.options());
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kChunk) {
    const std::int64_t count = std::min(kChunk, flat.numel() - begin);
    at::Tensor chunk = flat.narrow(0, begin, count).to(dtype);
    if (factor != 1) chunk = chunk.mul(factor);
    counts.scatter_add_(0, buckets_of(chunk), one.expand({count}));
  }
}

}  // namespace trireme::train
