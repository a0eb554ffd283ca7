#pragma once
#include "ops/cpu/scores.hpp"

/// The layouts of both factors of products of large matrices. A word is an fp32 number, a pair of
/// bf16, or a bf16 number as fp32.
namespace trireme::ops::kernels {
namespace {

#ifdef __AVX512F__

constexpr std::int64_t kWordBytes = 4;
constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kRowsAhead = 8;  // B's rows that are fetched before they are packed
/// Number of words between two tiles of A's columns, or between two copied rows. A multiple of 4 KB
/// would put all of them into the same sets of the cache.
constexpr std::int64_t kTilePad = 16;

inline std::int64_t smaller_of(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

inline __mmask16 first_lanes(std::int64_t n) {
  if (n <= 0) return 0;
  return n >= kLanes ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1U << n) - 1);
}

/// Words of one fp32 number.
struct Numbers {
  using Number = float;
  static constexpr std::int64_t kInWord = 1;
  static constexpr bool kAreInMemory = true;  // a row of whole words needs no copy
  static constexpr std::int64_t kFetchedAhead = 0;

  /// Loads words along the columns of a row. The middle arguments are for pairs.
  static U across(const float* row, std::int64_t /*stride*/, bool /*full*/, __mmask16 lanes) {
    return (U)_mm512_maskz_loadu_ps(lanes, row);
  }

  /// Loads words of adjacent numbers, of which `left` are in memory.
  static U along(const float* numbers, std::int64_t left) {
    return (U)_mm512_maskz_loadu_ps(first_lanes(left), numbers);
  }

  static __m512 multiply(__m512 sum, U a, U b) {
    return _mm512_fmadd_ps((__m512)a, (__m512)b, sum);
  }
};

/// Words of one bf16 number, converted to fp32.
struct WidenedNumbers {
  using Number = Bf16;
  static constexpr std::int64_t kInWord = 1;
  static constexpr bool kAreInMemory = false;
  /// B's words are fetched into the first-level cache 8 words of k before their use. Measured on Intel
  /// model 207, with products of 2048 rows: 3 to 30 % faster, most while the machine was disturbed.
  static constexpr std::int64_t kFetchedAhead = 8 * kPanelColumns;

  static U across(const Bf16* row, std::int64_t /*stride*/, bool /*full*/, __mmask16 lanes) {
    return __builtin_convertvector((Half)_mm256_maskz_loadu_epi16(lanes, row), U) << 16;
  }

  static U along(const Bf16* numbers, std::int64_t left) {
    return across(numbers, 0, true, first_lanes(left));
  }

  static __m512 multiply(__m512 sum, U a, U b) { return Numbers::multiply(sum, a, b); }
};

#ifdef __AVX512BF16__
/// Words of two bf16, the one with the lower k in the low half.
struct Pairs {
  using Number = Bf16;
  static constexpr std::int64_t kInWord = 2;
  static constexpr bool kAreInMemory = true;
  static constexpr std::int64_t kFetchedAhead = 0;

  /// Interleaves a row with the next one, `stride` numbers away. If not full, there is no next row,
  /// and zeros take its place.
  static U across(const Bf16* row, std::int64_t stride, bool full, __mmask16 lanes) {
    const U low = __builtin_convertvector((Half)_mm256_maskz_loadu_epi16(lanes, row), U);
    if (!full) return low;
    const U high = __builtin_convertvector((Half)_mm256_maskz_loadu_epi16(lanes, row + stride), U);
    return low | high << 16;
  }

  static U along(const Bf16* numbers, std::int64_t left) {
    const __mmask32 some = left >= 2 * kLanes ? 0xffffffffU : (1U << left) - 1;
    return (U)_mm512_maskz_loadu_epi16(some, numbers);
  }

  static __m512 multiply(__m512 sum, U a, U b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
};
#endif

template <class W>
inline std::int64_t words_in(std::int64_t width) {
  return (width + W::kInWord - 1) / W::kInWord;
}

inline void put_words(std::uint32_t* to, U words) {
  __builtin_memcpy(to, &words, sizeof(words));
}

/// Returns 16 words of low and high together, from word `first` of low on.
template <std::uint32_t first>
inline U words_from(U low, U high) {
  U lanes;
  for (std::uint32_t i = 0; i < kLanes; ++i) lanes[i] = i + first;
  return __builtin_shuffle(low, high, lanes);
}

template <class W>
void pack_rows_of_b(const Panels& a) {
  using T = typename W::Number;
  const std::int64_t words = words_in<W>(a.width);
  for (std::int64_t word = 0; word < words; ++word) {
    const std::int64_t k = W::kInWord * word;
    const T* row = typed<T>(a.b) + k * a.b_stride;
    const bool full = k + W::kInWord <= a.width;
    // The processor fetches the next parts of a row by itself, but not the next rows.
    const bool fetches = k + kRowsAhead + W::kInWord <= a.width;
    const T* const ahead = row + kRowsAhead * a.b_stride;
    std::uint32_t* to = a.panels + word * kPanelColumns;
    for (std::int64_t n = 0; n < a.columns; n += kPanelColumns, to += a.panel_stride) {
      if (fetches) {
        for (std::int64_t i = 0; i < W::kInWord; ++i)
          _mm_prefetch(reinterpret_cast<const char*>(ahead + i * a.b_stride + n), _MM_HINT_T0);
      }
      for (std::int64_t half = 0; half < kPanelColumns; half += kLanes) {
        const std::int64_t at = n + half;
        const __mmask16 lanes = first_lanes(a.columns - at);
        put_words(to + half, lanes == 0 ? U{} : W::across(row + at, a.b_stride, full, lanes));
      }
    }
  }
}

/// Packs 16 columns of a transposed B, and fetches the next 16.
template <class W>
void pack_columns_of_b(const Panels& a, std::int64_t first, std::uint32_t* to) {
  using T = typename W::Number;
  const std::int64_t words = words_in<W>(a.width);
  const std::int64_t columns = smaller_of(a.columns - first, kLanes);
  const bool fetches = first + 2 * kLanes <= a.columns;
  for (std::int64_t word = 0; word < words; word += kLanes) {
    const std::int64_t left = a.width - W::kInWord * word;
    const T* column = typed<T>(a.b) + first * a.b_stride + W::kInWord * word;
    U v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i, column += a.b_stride) {
      v[i] = i < columns ? W::along(column, left) : U{};
      if (fetches)
        _mm_prefetch(reinterpret_cast<const char*>(column + kLanes * a.b_stride), _MM_HINT_T0);
    }
    exchange<1>(v);
    exchange<2>(v);
    exchange<4>(v);
    exchange<8>(v);
    std::uint32_t* const out = to + word * kPanelColumns;
    if (words - word >= kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) put_words(out + i * kPanelColumns, v[i]);
    } else {
      for (std::int64_t i = 0; i < words - word; ++i) put_words(out + i * kPanelColumns, v[i]);
    }
  }
}

template <class W>
void pack_panels_typed(const Panels& a) {
  if (!a.b_transposed) {
    pack_rows_of_b<W>(a);
    return;
  }
  for (std::int64_t n = 0; n < a.columns; n += kPanelColumns) {
    std::uint32_t* const to = a.panels + n / kPanelColumns * a.panel_stride;
    for (std::int64_t half = 0; half < kPanelColumns; half += kLanes)
      pack_columns_of_b<W>(a, n + half, to + half);
  }
}

/// Packs A^T, which is in memory, to tiles of 12 rows of A: words [k, 12]. A store writes 16 words;
/// the last four are overwritten by the next word of k or lie in the pad.
template <class W>
void pack_tiles_of_a(const PanelProduct& a) {
  using T = typename W::Number;
  constexpr std::int64_t kGroup = 4 * kPanelTileRows;  // fills three registers
  const std::int64_t words = words_in<W>(a.width);
  const std::int64_t tile = words * kPanelTileRows + kTilePad;
  for (std::int64_t word = 0; word < words; ++word) {
    const T* row = typed<T>(a.a) + W::kInWord * word * a.a_stride;
    const bool full = W::kInWord * (word + 1) <= a.width;
    const auto load = [&](std::int64_t m, __mmask16 lanes) {
      return W::across(row + m, a.a_stride, full, lanes);
    };
    std::uint32_t* to = a.scratch + word * kPanelTileRows;
    std::int64_t m = 0;
    for (; m + kGroup <= a.rows; m += kGroup, to += 4 * tile) {
      const U x = load(m, 0xffff);
      const U y = load(m + kLanes, 0xffff);
      const U z = load(m + 2 * kLanes, 0xffff);
      put_words(to, x);
      put_words(to + tile, words_from<12>(x, y));
      put_words(to + 2 * tile, words_from<8>(y, z));
      put_words(to + 3 * tile, words_from<4>(z, z));
    }
    for (; m < a.rows; m += kPanelTileRows, to += tile)
      put_words(to, load(m, first_lanes(smaller_of(kPanelTileRows, a.rows - m))));
  }
}

/// Copies rows as words. A last word that is not full gets zeros. Returns the number of words from
/// one copied row to the next.
template <class W>
std::int64_t copy_rows_of_a(const PanelProduct& a) {
  using T = typename W::Number;
  const std::int64_t stride = (words_in<W>(a.width) + kLanes - 1) / kLanes * kLanes + kTilePad;
  for (std::int64_t m = 0; m < a.rows; ++m) {
    const T* row = typed<T>(a.a) + m * a.a_stride;
    std::uint32_t* to = a.scratch + m * stride;
    for (std::int64_t k = 0; k < a.width; k += W::kInWord * kLanes, to += kLanes)
      put_words(to, W::along(row + k, a.width - k));
  }
  return stride;
}

#endif

}  // namespace
}  // namespace trireme::ops::kernels
