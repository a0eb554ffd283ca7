#include "core/philox.hpp"
#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/dropout.hpp"

namespace trireme::ops::cuda {

/// Selects a word without an index, so that the words stay in registers.
inline std::uint32_t word_of(const PhiloxWords& words, std::uint64_t index) {
  const std::uint32_t left = index % 2 == 0 ? words[0] : words[1];
  const std::uint32_t right = index % 2 == 0 ? words[2] : words[3];
  return index < 2 ? left : right;
}

/// Multiplies the elements of one row by `factor` or 0. Four features share a counter, so vectors
/// must begin at a multiple of four features.
template <class T>
void dropout(const Dropout& a) {
  const std::int64_t first = blockIdx.x * a.width;
  const T* x = typed<T>(a.x) + first;
  T* y = typed<T>(a.y) + first;
  const std::uint64_t position = static_cast<std::uint64_t>(a.positions[blockIdx.x]) << 32;
  const auto sample = static_cast<std::uint64_t>(a.samples[blockIdx.x / a.length]);
  const bool packed = a.first_feature % 4 == 0 && is_packed<T>(a.width, x, y);
  for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    const auto feature = static_cast<std::uint64_t>(a.first_feature + i);
    Floats<n> value = load<n>(x + i);
    PhiloxWords words{};
    for (int j = 0; j < n; ++j) {
      if (j % 4 == 0) words = philox4x32(a.key, position | (feature + j) / 4, sample);
      const std::uint32_t word = n == 1 ? word_of(words, feature % 4) : words[j % 4];
      value[j] *= word >= a.threshold ? a.factor : 0.0F;
    }
    store(y + i, value);
  });
}

}  // namespace trireme::ops::cuda
