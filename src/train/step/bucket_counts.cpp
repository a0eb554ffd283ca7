#include "train/step/bucket_counts.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <type_traits>
#include <vector>

namespace trireme::train {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // limits the memory of the indices

/// The parts of a floating-point number that select its bucket. The sign, the exponent and the
/// first two bits of the mantissa are the key. Without the sign, a larger key means a larger |x|.
template <class T>
struct Keys {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static constexpr int kMantissaBits = sizeof(T) == 8 ? 52 : 23;
  static constexpr int kBias = sizeof(T) == 8 ? 1023 : 127;
  static constexpr int kShift = kMantissaBits - 2;
  static constexpr std::size_t kNum = std::size_t{1} << (8 * sizeof(T) - kShift);
  /// The key of the first positive bucket, 2^kMinExponent.
  static constexpr std::int64_t kFirst =
      (kBias + ExponentialBuckets::kMinExponent) * ExponentialBuckets::kPerOctave;

  /// Returns the bucket of a key.
  static std::size_t bucket(std::size_t key) {
    const std::size_t magnitude_key = key % (kNum / 2);
    const std::int64_t magnitude = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(magnitude_key) - (kFirst - 1), 0, ExponentialBuckets::kPerSign);
    constexpr std::size_t kInfinity = std::size_t{2 * kBias + 1} << 2;
    const bool is_negative = key >= kNum / 2 && magnitude_key <= kInfinity;  // NaN has no sign
    return static_cast<std::size_t>(ExponentialBuckets::kPerSign +
                                    (is_negative ? -magnitude : magnitude));
  }
};

/// Counts the values of a CPU tensor by their keys. Equal keys in a row go to different tables, so
/// that an addition does not wait for the last one.
template <class T>
void count_on_host(const at::Tensor& values, double factor, const at::Tensor& counts) {
  constexpr std::size_t kTables = 4;
  constexpr std::int64_t kGrain = std::int64_t{1} << 18;
  const at::Tensor flat = values.contiguous();
  const T* const data = flat.const_data_ptr<T>();
  const T scale = static_cast<T>(factor);
  std::mutex mutex;
  auto* const out = counts.mutable_data_ptr<std::int64_t>();
  const auto key_of = [&](std::int64_t i) {
    const T value = factor == 1 ? data[i] : data[i] * scale;
    return static_cast<std::size_t>(std::bit_cast<typename Keys<T>::Bits>(value) >>
                                    Keys<T>::kShift);
  };
  const std::int64_t total = flat.numel();
  if (total < static_cast<std::int64_t>(Keys<T>::kNum)) {  // tables would cost more than they save
    for (std::int64_t i = 0; i < total; ++i) ++out[Keys<T>::bucket(key_of(i))];
    return;
  }
  at::parallel_for(0, total, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::array<std::int64_t, Keys<T>::kNum>> tables(kTables);
    for (std::int64_t i = begin; i < end; ++i)
      ++tables[static_cast<std::size_t>(i) % kTables][key_of(i)];
    const std::lock_guard lock(mutex);
    for (const auto& table : tables)
      for (std::size_t i = 0; i < table.size(); ++i)
        if (table[i] != 0) out[Keys<T>::bucket(i)] += table[i];
  });
}

/// Returns the bucket of each element, which is in fp32 or fp64.
at::Tensor buckets_of(const at::Tensor& values) {
  using Buckets = ExponentialBuckets;
  const bool is_double = values.scalar_type() == at::kDouble;
  const int shift = is_double ? Keys<double>::kShift : Keys<float>::kShift;
  const std::int64_t first = is_double ? Keys<double>::kFirst : Keys<float>::kFirst;
  const at::Tensor bits = values.abs().view(is_double ? at::kLong : at::kInt);
  const at::Tensor magnitude = at::bitwise_right_shift(bits, shift)
                                   .to(at::kLong)
                                   .sub_(first - 1)
                                   .clamp_(0, Buckets::kPerSign);
  return at::where(values.lt(0), magnitude.neg(), magnitude).add_(Buckets::kPerSign);
}

/// Returns the dtype in which values are counted.
at::ScalarType dtype_of_counts(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

void count_in_buckets(const at::Tensor& values, double factor, const at::Tensor& counts) {
  if (!values.is_cpu()) {
    count_in_buckets_plain(values, factor, counts);
  } else if (values.scalar_type() == at::kDouble) {
    count_on_host<double>(values, factor, counts);
  } else {
    count_on_host<float>(values.to(at::kFloat), factor, counts);
  }
}

void count_in_buckets_plain(const at::Tensor& values, double factor, const at::Tensor& counts) {
  const at::Tensor flat = values.reshape({-1});
  const at::ScalarType dtype = dtype_of_counts(values);
  const at::Tensor one = at::ones({1}, counts.options());
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kChunk) {
    const std::int64_t count = std::min(kChunk, flat.numel() - begin);
    at::Tensor chunk = flat.narrow(0, begin, count).to(dtype);
    if (factor != 1) chunk = chunk.mul(factor);
    counts.scatter_add_(0, buckets_of(chunk), one.expand({count}));
  }
}

}  // namespace trireme::train
