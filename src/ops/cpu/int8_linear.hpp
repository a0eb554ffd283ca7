#pragma once
#include "ops/cpu/linear.hpp"

/// y = x W^T for inference, with W in int8 and one factor per row of W. Memory is read as int8, and
/// numbers of W are widened in registers: to fp32, or to bf16 for x in pairs of bf16. Both have them
/// exactly. Every element of y is computed by the same operations in the same order for any number
/// of rows.
namespace trireme::ops::kernels {
namespace {

/// Number of rows of x from which a tile of W is widened once, into scratch memory.
constexpr std::int64_t kWidenedRows = kTileRows + 1;

#ifdef __AVX512BF16__
/// A number of W that is multiplied as bf16.
enum class PairedInt8 : std::int8_t {};

template <>
constexpr std::int64_t kDotStep<PairedInt8> = kDotStep<Bf16>;
template <>
constexpr std::int64_t kInWord<PairedInt8> = kInWord<Bf16>;

/// Widens 32 numbers. They have no bits in the lower half of an fp32 word.
inline __m512bh load_as_pairs(const PairedInt8* p) {
  using Halves = std::uint16_t __attribute__((vector_size(64)));
  const auto* const bytes = reinterpret_cast<const std::int8_t*>(p);
  const auto first = (Halves)load_wide(bytes);
  const auto second = (Halves)load_wide(bytes + kWide);
  return (__m512bh)__builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23,
                                           25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51,
                                           53, 55, 57, 59, 61, 63);
}

/// Has the operations of the step of bf16.
template <int kRows, int kOuts>
inline void dot_step(const float* const* x, const PairedInt8* const* w, std::int64_t k,
                     V (&sums)[kRows][kOuts]) {
  __m512bh left[kRows];
  for (int r = 0; r < kRows; ++r) left[r] = load_pairs(x[r] + k / 2);
  for (int o = 0; o < kOuts; ++o) {
    const __m512bh right = load_as_pairs(w[o] + k);
    for (int r = 0; r < kRows; ++r)
      sums[r][o] = (V)_mm512_dpbf16_ps((__m512)sums[r][o], left[r], right);
  }
}

inline void widen_row(const PairedInt8* from, Bf16* to, std::int64_t count) {
  std::int64_t k = 0;
  for (; k + kDotStep<Bf16> <= count; k += kDotStep<Bf16>) {
    const __m512bh pairs = load_as_pairs(from + k);
    __builtin_memcpy(to + k, &pairs, sizeof(pairs));
  }
  if (k == count) return;
  PairedInt8 end[kDotStep<Bf16>] = {};
  const auto left = static_cast<std::size_t>(count - k);
  __builtin_memcpy(end, from + k, left);
  const __m512bh pairs = load_as_pairs(end);
  __builtin_memcpy(to + k, &pairs, left * sizeof(Bf16));
}
#endif

inline void widen_row(const std::int8_t* from, float* to, std::int64_t count) {
  std::int64_t k = 0;
  for (; k + kWide <= count; k += kWide) store_wide(to + k, load_wide(from + k));
  for (; k < count; ++k) to[k] = from[k];
}

/// Multiplies rows [row, row + rows) of x with `outs` rows of W by tiles of kTileRows rows.
template <class T>
inline void scaled_tiles(const LinearRows& a, std::int64_t first, std::int64_t end,
                         std::int64_t first_out, std::int64_t outs) {
  for (std::int64_t row = first; row < end; row += kTileRows) {
    const std::int64_t rows = end - row < kTileRows ? end - row : kTileRows;
    dot_tiles<T, kTileRows>(a, row, rows, first_out, outs);
  }
}

/// Reads W as T, and widens its numbers to Wide.
template <class T, class Wide>
void int8_linear_rows_typed(const LinearRows& a) {
  const auto row_bytes = a.x_stride * static_cast<std::int64_t>(sizeof(float)) / kInWord<T>;
  const std::int64_t at_once = rows_in_cache(row_bytes, kTileRows);
  for (std::int64_t block = 0; block < a.rows; block += at_once) {
    const std::int64_t end = block + at_once < a.rows ? block + at_once : a.rows;
    for (std::int64_t o = a.first_out; o < a.last_out; o += kOutsPerTile) {
      const std::int64_t outs = a.last_out - o < kOutsPerTile ? a.last_out - o : kOutsPerTile;
      if (end - block < kWidenedRows) {
        scaled_tiles<T>(a, block, end, o, outs);
        continue;
      }
      for (std::int64_t i = 0; i < outs; ++i)
        widen_row(typed<T>(a.w) + (o + i) * a.w_stride,
                  typed<Wide>(static_cast<void*>(a.scratch)) + i * a.x_stride, a.in);
      LinearRows widened = a;  // the scratch rows stand for rows [o, o + outs) of W
      widened.w = a.scratch;
      widened.w_stride = a.x_stride;
      widened.w_first_out = o;
      scaled_tiles<Wide>(widened, block, end, o, outs);
    }
  }
}

void int8_linear_rows(const LinearRows& a) {
#ifdef __AVX512BF16__
  if (a.element == Element::bf16) return int8_linear_rows_typed<PairedInt8, Bf16>(a);
#endif
  int8_linear_rows_typed<std::int8_t, float>(a);
}

}  // namespace
}  // namespace trireme::ops::kernels
