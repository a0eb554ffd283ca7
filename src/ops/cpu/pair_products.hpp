#pragma once
#include "ops/cpu/scores.hpp"

/// Products of large bf16 matrices with the instruction that multiplies pairs of bf16. A tile of
/// 12 x 32 sums stays in registers while it takes all pairs of k in order, so the order of the
/// additions to an element of C depends only on the width.
namespace trireme::ops::kernels {
namespace {

#ifdef __AVX512BF16__

constexpr std::int64_t kWord = 2;  // bf16 in a word
constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kRowsAhead = 8;  // B's rows that are fetched before they are packed
/// Words between two tiles of A's columns. A multiple of 4 KB would put all tiles into the same
/// sets of the cache.
constexpr std::int64_t kTilePad = 16;

inline std::int64_t smaller_of(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

inline std::int64_t pairs_in(std::int64_t width) {
  return (width + 1) / kWord;
}

inline __mmask16 first_lanes(std::int64_t n) {
  if (n <= 0) return 0;
  return n >= kLanes ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1U << n) - 1);
}

/// Interleaves numbers of two rows; `odd` may be null (zeros).
inline U interleave(const Bf16* even, const Bf16* odd, __mmask16 lanes) {
  const U low = __builtin_convertvector((Half)_mm256_maskz_loadu_epi16(lanes, even), U);
  if (odd == nullptr) return low;
  const U high = __builtin_convertvector((Half)_mm256_maskz_loadu_epi16(lanes, odd), U);
  return low | high << 16;
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

void pack_rows_of_b(const PairPanels& a) {
  const std::int64_t pairs = pairs_in(a.width);
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const Bf16* even = a.b + kWord * pair * a.b_stride;
    const Bf16* odd = kWord * pair + 1 < a.width ? even + a.b_stride : nullptr;
    // The processor fetches the next parts of a row by itself, but not the next rows.
    const bool fetches = kWord * pair + kRowsAhead + 1 < a.width;
    const Bf16* const ahead = even + kRowsAhead * a.b_stride;
    std::uint32_t* to = a.panels + pair * kPanelColumns;
    for (std::int64_t n = 0; n < a.columns; n += kPanelColumns, to += a.panel_stride) {
      if (fetches) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + n), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(ahead + a.b_stride + n), _MM_HINT_T0);
      }
      for (std::int64_t half = 0; half < kPanelColumns; half += kLanes) {
        const std::int64_t at = n + half;
        const __mmask16 lanes = first_lanes(a.columns - at);
        put_words(to + half,
                  lanes == 0 ? U{} : interleave(even + at, odd == nullptr ? odd : odd + at, lanes));
      }
    }
  }
}

/// Packs 16 columns of a transposed B, and fetches the next 16.
void pack_columns_of_b(const PairPanels& a, std::int64_t first, std::uint32_t* to) {
  const std::int64_t pairs = pairs_in(a.width);
  const std::int64_t columns = smaller_of(a.columns - first, kLanes);
  const bool fetches = first + 2 * kLanes <= a.columns;
  for (std::int64_t pair = 0; pair < pairs; pair += kLanes) {
    const std::int64_t left = a.width - kWord * pair;
    const __mmask32 some = left >= 2 * kLanes ? 0xffffffffU : (1U << left) - 1;
    const Bf16* column = a.b + first * a.b_stride + kWord * pair;
    U v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i, column += a.b_stride) {
      v[i] = i < columns ? (U)_mm512_maskz_loadu_epi16(some, column) : U{};
      if (fetches)
        _mm_prefetch(reinterpret_cast<const char*>(column + kLanes * a.b_stride), _MM_HINT_T0);
    }
    exchange<1>(v);
    exchange<2>(v);
    exchange<4>(v);
    exchange<8>(v);
    std::uint32_t* const words = to + pair * kPanelColumns;
    if (pairs - pair >= kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) put_words(words + i * kPanelColumns, v[i]);
    } else {
      for (std::int64_t i = 0; i < pairs - pair; ++i) put_words(words + i * kPanelColumns, v[i]);
    }
  }
}

void pack_pair_panels(const PairPanels& a) {
  if (!a.b_transposed) {
    pack_rows_of_b(a);
    return;
  }
  for (std::int64_t n = 0; n < a.columns; n += kPanelColumns) {
    std::uint32_t* const to = a.panels + n / kPanelColumns * a.panel_stride;
    for (std::int64_t half = 0; half < kPanelColumns; half += kLanes)
      pack_columns_of_b(a, n + half, to + half);
  }
}

/// Packs A^T, which is in memory, to tiles of 12 rows of A: words [pairs, 12]. A store writes 16
/// words; the last four are overwritten by the next pair or lie in the pad.
void pack_tiles_of_a(const PairProduct& a) {
  constexpr std::int64_t kGroup = 4 * kPairTileRows;  // fills three registers
  const std::int64_t pairs = pairs_in(a.width);
  const std::int64_t tile = pairs * kPairTileRows + kTilePad;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const Bf16* even = a.a + kWord * pair * a.a_stride;
    const Bf16* odd = kWord * pair + 1 < a.width ? even + a.a_stride : nullptr;
    std::uint32_t* to = a.scratch + pair * kPairTileRows;
    std::int64_t m = 0;
    if (odd != nullptr) {
      for (; m + kGroup <= a.rows; m += kGroup, to += 4 * tile) {
        const U x = interleave(even + m, odd + m, 0xffff);
        const U y = interleave(even + m + kLanes, odd + m + kLanes, 0xffff);
        const U z = interleave(even + m + 2 * kLanes, odd + m + 2 * kLanes, 0xffff);
        put_words(to, x);
        put_words(to + tile, words_from<12>(x, y));
        put_words(to + 2 * tile, words_from<8>(y, z));
        put_words(to + 3 * tile, words_from<4>(z, z));
      }
    }
    for (; m < a.rows; m += kPairTileRows, to += tile) {
      const __mmask16 lanes = first_lanes(smaller_of(kPairTileRows, a.rows - m));
      put_words(to, interleave(even + m, odd == nullptr ? odd : odd + m, lanes));
    }
  }
}

/// Copies rows of odd width, so that the last word of each row has a zero.
void copy_rows_of_a(const PairProduct& a) {
  const std::int64_t stride = kWord * pairs_in(a.width);
  Bf16* to = typed<Bf16>(static_cast<void*>(a.scratch));
  for (std::int64_t m = 0; m < a.rows; ++m, to += stride) {
    __builtin_memcpy(to, a.a + m * a.a_stride, static_cast<std::size_t>(a.width) * sizeof(Bf16));
    to[a.width] = 0;
  }
}

/// Where the words of some rows of A are: row i at i * row_bytes, pair k at k * pair_bytes.
struct PairRows {
  const char* first;
  std::int64_t row_bytes;
  std::int64_t pair_bytes;
};

/// One tile of C.
struct PairTile {
  PairRows a;
  const std::uint32_t* panel;
  std::int64_t pairs;
  void* c;
  std::int64_t c_stride;
  std::int64_t columns;
  Element c_element;
  bool add;
};

template <int kRows>
using TileSums = __m512[kRows][2];

/// Groups of three rows share a pointer, because there are not enough registers for 12 pointers.
template <int kRows>
[[gnu::always_inline]] inline void multiply_tile(const PairTile& t, TileSums<kRows>& sums) {
  constexpr int kGroups = (kRows + 2) / 3;
  const char* groups[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) groups[g] = t.a.first + 3 * g * t.a.row_bytes;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const std::uint32_t* b = t.panel;
  for (std::int64_t k = 0; k < t.pairs; ++k, b += kPanelColumns) {
    const __m512bh left = (__m512bh)_mm512_loadu_si512(b);
    const __m512bh right = (__m512bh)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      std::int32_t word;
      __builtin_memcpy(&word, groups[i / 3] + i % 3 * t.a.row_bytes, sizeof(word));
      const __m512bh x = (__m512bh)_mm512_set1_epi32(word);
      sums[i][0] = _mm512_dpbf16_ps(sums[i][0], x, left);
      sums[i][1] = _mm512_dpbf16_ps(sums[i][1], x, right);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) groups[g] += t.a.pair_bytes;
  }
}

inline void store_sums(Bf16* c, __m512 sums, __mmask16 lanes, bool add) {
  if (add) sums += (__m512)widen((Half)_mm256_maskz_loadu_epi16(lanes, c));
  _mm256_mask_storeu_epi16(c, lanes, (__m256i)_mm512_cvtneps_pbh(sums));
}

inline void store_sums(float* c, __m512 sums, __mmask16 lanes, bool add) {
  if (add) sums += _mm512_maskz_loadu_ps(lanes, c);
  _mm512_mask_storeu_ps(c, lanes, sums);
}

template <class T, int kRows>
[[gnu::always_inline]] inline void store_tile(const PairTile& t, const TileSums<kRows>& sums) {
  T* const c = typed<T>(t.c);
  const __mmask16 left = first_lanes(t.columns);
  const __mmask16 right = first_lanes(t.columns - kLanes);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    store_sums(c + i * t.c_stride, sums[i][0], left, t.add);
    if (right != 0) store_sums(c + i * t.c_stride + kLanes, sums[i][1], right, t.add);
  }
}

template <int kRows>
[[gnu::noinline]] void compute_tile(const PairTile& t) {
  TileSums<kRows> sums;
  multiply_tile<kRows>(t, sums);
  if (t.c_element == Element::f32) {
    store_tile<float, kRows>(t, sums);
  } else {
    store_tile<Bf16, kRows>(t, sums);
  }
}

template <int kRows>
void compute_rows(const PairTile& t, std::int64_t rows) {
  if constexpr (kRows == 1) {
    compute_tile<1>(t);
  } else if (rows == kRows) {
    compute_tile<kRows>(t);
  } else {
    compute_rows<kRows - 1>(t, rows);
  }
}

/// Fetches the next rows of a transposed A into the cache in equal steps. The processor does not
/// fetch them by itself, because they are short parts of many rows of A^T.
class NextRows {
 public:
  NextRows(const PairProduct& a, std::int64_t steps)
      : at_(reinterpret_cast<const char*>(a.a + a.rows)),
        stride_(a.a_stride * kWord),
        bytes_(a.next_rows * kWord),
        count_(a.a_transposed && a.next_rows > 0 ? a.width : 0),
        per_step_((a.width + steps - 1) / steps) {}

  void step() {
    for (std::int64_t i = 0; i < per_step_ && count_ > 0; ++i, --count_, at_ += stride_) {
      for (std::int64_t byte = 0; byte < bytes_; byte += kLineBytes)
        _mm_prefetch(at_ + byte, _MM_HINT_T1);
    }
  }

 private:
  const char* at_;
  std::int64_t stride_;
  std::int64_t bytes_;
  std::int64_t count_;
  std::int64_t per_step_;
};

/// Fetches C's part before the products, which take much longer than a read from memory.
inline void fetch_tile(const PairTile& t, std::int64_t rows, std::int64_t element_bytes) {
  const char* row = static_cast<const char*>(t.c);
  for (std::int64_t i = 0; i < rows; ++i, row += t.c_stride * element_bytes) {
    for (std::int64_t byte = 0; byte < t.columns * element_bytes; byte += kLineBytes)
      __builtin_prefetch(row + byte, 1, 2);
  }
}

void pair_products(const PairProduct& a) {
  const std::int64_t pairs = pairs_in(a.width);
  PairRows rows_of_a{reinterpret_cast<const char*>(a.a), a.a_stride * kWord, kWord * 2};
  std::int64_t tile_bytes = kPairTileRows * rows_of_a.row_bytes;
  if (a.a_transposed) {
    pack_tiles_of_a(a);
    rows_of_a = {reinterpret_cast<const char*>(a.scratch), 4, 4 * kPairTileRows};
    tile_bytes = 4 * (pairs * kPairTileRows + kTilePad);
  } else if (a.width % kWord != 0) {
    copy_rows_of_a(a);
    rows_of_a = {reinterpret_cast<const char*>(a.scratch), 4 * pairs, 4};
    tile_bytes = kPairTileRows * rows_of_a.row_bytes;
  }
  const std::int64_t element_bytes = a.c_element == Element::f32 ? 4 : 2;
  const std::int64_t tiles = (a.rows + kPairTileRows - 1) / kPairTileRows;
  NextRows next(a, tiles * ((a.columns + kPanelColumns - 1) / kPanelColumns));
  for (std::int64_t n = 0; n < a.columns; n += kPanelColumns) {
    PairTile tile{rows_of_a,   a.panels + n / kPanelColumns * a.panel_stride,
                  pairs,       static_cast<char*>(a.c) + n * element_bytes,
                  a.c_stride,  smaller_of(kPanelColumns, a.columns - n),
                  a.c_element, a.add};
    for (std::int64_t m = 0; m < a.rows; m += kPairTileRows) {
      const std::int64_t rows = smaller_of(kPairTileRows, a.rows - m);
      fetch_tile(tile, rows, element_bytes);
      next.step();
      compute_rows<kPairTileRows>(tile, rows);
      tile.a.first += tile_bytes;
      tile.c = static_cast<char*>(tile.c) + kPairTileRows * a.c_stride * element_bytes;
    }
  }
}

constexpr auto kPackPairPanels = &pack_pair_panels;
constexpr auto kPairProducts = &pair_products;
#else
constexpr void (*kPackPairPanels)(const PairPanels&) = nullptr;
constexpr void (*kPairProducts)(const PairProduct&) = nullptr;
#endif

}  // namespace
}  // namespace trireme::ops::kernels
