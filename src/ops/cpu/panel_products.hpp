#pragma once
#include "ops/cpu/panels.hpp"

/// Products of large matrices with AVX-512. A tile of 12 x 32 sums stays in registers while it
/// takes all words of k in order, so the order of the additions to an element of C depends only on
/// the width.
namespace trireme::ops::kernels {
namespace {

#ifdef __AVX512F__

/// Where the words of some rows of A are: row i at i * row_bytes, word k at k * word_bytes.
struct WordRows {
  const char* first;
  std::int64_t row_bytes;
  std::int64_t word_bytes;
};

/// One tile of C.
struct ProductTile {
  WordRows a;
  const std::uint32_t* b;  // words of k at k * b_stride
  std::int64_t b_stride;
  std::int64_t words;
  void* c;
  std::int64_t c_stride;
  std::int64_t columns;
  Element c_element;
  bool add;
};

template <int kRows>
using TileSums = __m512[kRows][2];

/// Groups of three rows share a pointer, because there are not enough registers for 12 pointers.
template <class W, int kRows>
[[gnu::always_inline]] inline void multiply_tile(const ProductTile& t, TileSums<kRows>& sums) {
  constexpr int kGroups = (kRows + 2) / 3;
  const char* groups[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) groups[g] = t.a.first + 3 * g * t.a.row_bytes;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const std::uint32_t* b = t.b;
  for (std::int64_t k = 0; k < t.words; ++k, b += t.b_stride) {
    if constexpr (W::kFetchedAhead > 0) {
      _mm_prefetch(reinterpret_cast<const char*>(b + W::kFetchedAhead), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(b + W::kFetchedAhead + kLanes), _MM_HINT_T0);
    }
    const U left = (U)_mm512_loadu_si512(b);
    const U right = (U)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      std::int32_t word;
      __builtin_memcpy(&word, groups[i / 3] + i % 3 * t.a.row_bytes, sizeof(word));
      const U x = (U)_mm512_set1_epi32(word);
      sums[i][0] = W::multiply(sums[i][0], x, left);
      sums[i][1] = W::multiply(sums[i][1], x, right);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) groups[g] += t.a.word_bytes;
  }
}

inline void store_sums(Bf16* c, __m512 sums, __mmask16 lanes, bool add) {
  if (add) sums += (__m512)widen((Half)_mm256_maskz_loadu_epi16(lanes, c));
  _mm256_mask_storeu_epi16(c, lanes, (__m256i)narrow((F)sums));
}

inline void store_sums(float* c, __m512 sums, __mmask16 lanes, bool add) {
  if (add) sums += _mm512_maskz_loadu_ps(lanes, c);
  _mm512_mask_storeu_ps(c, lanes, sums);
}

template <class T, int kRows>
[[gnu::always_inline]] inline void store_tile(const ProductTile& t, const TileSums<kRows>& sums) {
  T* const c = typed<T>(t.c);
  const __mmask16 left = first_lanes(t.columns);
  const __mmask16 right = first_lanes(t.columns - kLanes);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    store_sums(c + i * t.c_stride, sums[i][0], left, t.add);
    if (right != 0) store_sums(c + i * t.c_stride + kLanes, sums[i][1], right, t.add);
  }
}

template <class W, int kRows>
[[gnu::noinline]] void compute_tile(const ProductTile& t) {
  TileSums<kRows> sums;
  multiply_tile<W, kRows>(t, sums);
  if (t.c_element == Element::f32) {
    store_tile<float, kRows>(t, sums);
  } else {
    store_tile<Bf16, kRows>(t, sums);
  }
}

template <class W, int kRows>
void compute_rows(const ProductTile& t, std::int64_t rows) {
  if constexpr (kRows == 1) {
    compute_tile<W, 1>(t);
  } else if (rows == kRows) {
    compute_tile<W, kRows>(t);
  } else {
    compute_rows<W, kRows - 1>(t, rows);
  }
}

/// Fetches the next rows of a transposed A into the cache in equal steps. The processor does not
/// fetch them by itself, because they are short parts of many rows of A^T.
class NextRows {
 public:
  NextRows(const PanelProduct& a, std::int64_t number_bytes, std::int64_t steps)
      : at_(static_cast<const char*>(a.a) + a.rows * number_bytes),
        stride_(a.a_stride * number_bytes),
        bytes_(a.next_rows * number_bytes),
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
inline void fetch_tile(const ProductTile& t, std::int64_t rows, std::int64_t element_bytes) {
  const char* row = static_cast<const char*>(t.c);
  for (std::int64_t i = 0; i < rows; ++i, row += t.c_stride * element_bytes) {
    for (std::int64_t byte = 0; byte < t.columns * element_bytes; byte += kLineBytes)
      __builtin_prefetch(row + byte, 1, 2);
  }
}

template <class W>
void panel_products_typed(const PanelProduct& a) {
  constexpr std::int64_t kNumberBytes = sizeof(typename W::Number);
  const std::int64_t words = words_in<W>(a.width);
  WordRows rows_of_a{static_cast<const char*>(a.a), a.a_stride * kNumberBytes, kWordBytes};
  std::int64_t tile_bytes = kPanelTileRows * rows_of_a.row_bytes;
  if (a.a_transposed) {
    pack_tiles_of_a<W>(a);
    rows_of_a = {reinterpret_cast<const char*>(a.scratch), kWordBytes, kWordBytes * kPanelTileRows};
    tile_bytes = kWordBytes * (words * kPanelTileRows + kTilePad);
  } else if (!W::kAreInMemory || a.width % W::kInWord != 0) {
    const std::int64_t row_bytes = kWordBytes * copy_rows_of_a<W>(a);
    rows_of_a = {reinterpret_cast<const char*>(a.scratch), row_bytes, kWordBytes};
    tile_bytes = kPanelTileRows * row_bytes;
  }
  const std::int64_t element_bytes = a.c_element == Element::f32 ? 4 : 2;
  const std::int64_t tiles = (a.rows + kPanelTileRows - 1) / kPanelTileRows;
  NextRows next(a, kNumberBytes, tiles * ((a.columns + kPanelColumns - 1) / kPanelColumns));
  for (std::int64_t n = 0; n < a.columns; n += kPanelColumns) {
    ProductTile tile{rows_of_a,
                     a.panels + n / kPanelColumns * a.panel_stride,
                     kPanelColumns,
                     words,
                     static_cast<char*>(a.c) + n * element_bytes,
                     a.c_stride,
                     smaller_of(kPanelColumns, a.columns - n),
                     a.c_element,
                     a.add};
    for (std::int64_t m = 0; m < a.rows; m += kPanelTileRows) {
      const std::int64_t rows = smaller_of(kPanelTileRows, a.rows - m);
      fetch_tile(tile, rows, element_bytes);
      next.step();
      compute_rows<W, kPanelTileRows>(tile, rows);
      tile.a.first += tile_bytes;
      tile.c = static_cast<char*>(tile.c) + kPanelTileRows * a.c_stride * element_bytes;
    }
  }
}

/// Calls call.operator()<W>() with the kind of words.
template <class Call>
inline void with_words(PanelWords words, const Call& call) {
  if (words == PanelWords::f32) call.template operator()<Numbers>();
  if (words == PanelWords::widened) call.template operator()<WidenedNumbers>();
#ifdef __AVX512BF16__
  if (words == PanelWords::pairs) call.template operator()<Pairs>();
#endif
}

void pack_panels(const Panels& a) {
  with_words(a.words, [&]<class W>() { pack_panels_typed<W>(a); });
}

void panel_products(const PanelProduct& a) {
  with_words(a.words, [&]<class W>() { panel_products_typed<W>(a); });
}

constexpr auto kPackPanels = &pack_panels;
constexpr auto kPanelProducts = &panel_products;
#else
constexpr void (*kPackPanels)(const Panels&) = nullptr;
constexpr void (*kPanelProducts)(const PanelProduct&) = nullptr;
#endif

#ifdef __AVX512BF16__
constexpr bool kMultipliesPairs = true;
#else
constexpr bool kMultipliesPairs = false;
#endif

}  // namespace
}  // namespace trireme::ops::kernels
