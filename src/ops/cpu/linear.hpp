#pragma once
#include "ops/cpu/rows.hpp"

/// y = x W^T for inference, by dot products along rows of both, without packing W. For few rows of
/// x, W is read once from memory; for many rows, parts of both stay in caches. Every element of y
/// is computed by the same operations in the same order for any number of rows.
namespace trireme::ops::kernels {
namespace {

constexpr int kTileRows = kWide == 16 ? 6 : 3;
using V8 = float __attribute__((vector_size(32)));
using V4 = float __attribute__((vector_size(16)));
using U4 = std::uint32_t __attribute__((vector_size(16)));
using Half4 = std::uint16_t __attribute__((vector_size(8)));
using WideI = std::int32_t __attribute__((vector_size(kWide * sizeof(std::int32_t))));

inline V load_wide(const float* p) {
  V x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}

inline V load_wide(const Bf16* p) {
  WideHalf bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return (V)(__builtin_convertvector(bits, WideU) << 16);
}

/// Widens int8 numbers. g++ 12 converts them one by one without the instructions named here.
inline V load_wide(const std::int8_t* p) {
#if defined(__AVX512F__)
  __m128i bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  // The form without a mask reads an undefined register, about which g++ 12 warns.
  return __builtin_convertvector((WideI)_mm512_maskz_cvtepi8_epi32(0xffff, bytes), V);
#elif defined(__AVX2__)
  long long bytes = 0;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector((WideI)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes)), V);
#else
  V x;
  for (int lane = 0; lane < kWide; ++lane) x[lane] = p[lane];
  return x;
#endif
}

inline void store_wide(float* p, V x) {
  __builtin_memcpy(p, &x, sizeof(x));
}

/// Returns [a0+a1, a2+a3, b0+b1, b2+b3 | the same for their upper halves].
template <class Eight>
inline Eight add_pairs(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

#ifdef __AVX512F__
template <class Vector>
inline auto folded(Vector x) {
  return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
}
#else
template <class Vector>
inline auto folded(Vector x) {
  return x;
}
#endif

/// Returns the sums of the lanes of four vectors.
template <class Vector>
inline auto sum_four(const Vector* x) {
  const auto all =
      add_pairs(add_pairs(folded(x[0]), folded(x[1])), add_pairs(folded(x[2]), folded(x[3])));
  return __builtin_shufflevector(all, all, 0, 1, 2, 3) +
         __builtin_shufflevector(all, all, 4, 5, 6, 7);
}

/// Number of elements of W per step, and the layout of x for it.
template <class T>
constexpr std::int64_t kDotStep = kWide;
/// Two bf16 numbers form one word. Either they are widened, and x has the even elements of a step
/// first, or they are multiplied directly with the same two elements of x.
template <>
constexpr std::int64_t kDotStep<Bf16> = 2 * kWide;
template <>
constexpr std::int64_t kDotStep<std::int8_t> = kRowAlign;

/// Number of elements of a row of x per word.
template <class T>
constexpr std::int64_t kInWord = 1;
#ifdef __AVX512BF16__
template <>
constexpr std::int64_t kInWord<Bf16> = 2;
#endif

/// Multiplies kWide columns.
template <class T, int kRows, int kOuts>
inline void dot_lanes(const float* const* x, const T* const* w, std::int64_t k,
                      V (&sums)[kRows][kOuts]) {
  V left[kRows];
  for (int r = 0; r < kRows; ++r) left[r] = load_wide(x[r] + k);
  for (int o = 0; o < kOuts; ++o) {
    const V right = load_wide(w[o] + k);
    for (int r = 0; r < kRows; ++r) sums[r][o] += left[r] * right;
  }
}

template <class T, int kRows, int kOuts>
inline void dot_step(const float* const* x, const T* const* w, std::int64_t k,
                     V (&sums)[kRows][kOuts]) {
#pragma GCC unroll 4
  for (std::int64_t lane = 0; lane < kDotStep<T>; lane += kWide) dot_lanes(x, w, k + lane, sums);
}

#ifdef __AVX512BF16__
template <class P>
inline __m512bh load_pairs(const P* p) {
  __m512bh pairs;
  __builtin_memcpy(&pairs, p, sizeof(pairs));
  return pairs;
}

template <int kRows, int kOuts>
inline void dot_step(const float* const* x, const Bf16* const* w, std::int64_t k,
                     V (&sums)[kRows][kOuts]) {
  __m512bh left[kRows];
  for (int r = 0; r < kRows; ++r) left[r] = load_pairs(x[r] + k / 2);
  for (int o = 0; o < kOuts; ++o) {
    const __m512bh right = load_pairs(w[o] + k);
    for (int r = 0; r < kRows; ++r)
      sums[r][o] = (V)_mm512_dpbf16_ps((__m512)sums[r][o], left[r], right);
  }
}
#else
template <int kRows, int kOuts>
inline void dot_step(const float* const* x, const Bf16* const* w, std::int64_t k,
                     V (&sums)[kRows][kOuts]) {
  for (int half = 0; half < 2; ++half) {  // the even elements, then the odd ones
    V left[kRows];
    for (int r = 0; r < kRows; ++r) left[r] = load_wide(x[r] + k + half * kWide);
    for (int o = 0; o < kOuts; ++o) {
      WideU pairs;
      __builtin_memcpy(&pairs, w[o] + k, sizeof(pairs));
      const V right = (V)(half == 0 ? pairs << 16 : pairs & 0xffff0000U);
      for (int r = 0; r < kRows; ++r) sums[r][o] += left[r] * right;
    }
  }
}
#endif

inline V4 numbers_of(V4 x, float) {
  return x;
}

/// Rounds like narrow().
inline Half4 numbers_of(V4 x, Bf16) {
  const U4 bits = (U4)x;
  const U4 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const U4 quiet = (bits >> 16) | 0x40U;
  return __builtin_convertvector(x == x ? rounded : quiet, Half4);
}

template <class T>
inline void put_some(T* p, V4 x, std::int64_t count) {
  const auto numbers = numbers_of(x, T{});
  if (count == 4) {
    __builtin_memcpy(p, &numbers, sizeof(numbers));
  } else {
    __builtin_memcpy(p, &numbers, static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// True if a single row of W is prefetched `kAhead` bytes ahead, and the rows of the next tile
/// while a tile is multiplied. Measured on Intel (model 207): one sequence in bf16 181 -> 266
/// tokens/s, in fp32 108 -> 111 tokens/s; 12 sequences in fp32 147 -> 195 tokens/s beside other
/// programs.
constexpr bool kFetchW = kFetchInOrder && kWide == 16;
constexpr std::size_t kAhead = 4096;

/// Adds the products of rows of x and rows of W, lane by lane.
template <class T, int kRows, int kOuts>
inline void dot_rows_of(const LinearRows& a, const float* const* x, const T* const* w,
                        V (&sums)[kRows][kOuts]) {
  std::int64_t k = 0;
  for (; k + kDotStep<T> <= a.in; k += kDotStep<T>) {
    if constexpr (kFetchW && kOuts == 1) __builtin_prefetch(w[0] + k + kAhead / sizeof(T));
    if constexpr (kFetchW && kOuts > 1 && sizeof(T) > 1) {
      for (int o = 0; o < kOuts; ++o) __builtin_prefetch(w[o] + k + kOuts * a.w_stride);
    }
    if constexpr (sizeof(T) == 1) {
      for (int o = 0; o < kOuts; ++o) __builtin_prefetch(w[o] + k + kAhead);
    }
    dot_step(x, w, k, sums);
  }
  if (k < a.in) {  // x has zeros after its end
    T ends[kOuts][kDotStep<T>] = {};
    const T* tails[kOuts];
    const float* x_tails[kRows];
    for (int o = 0; o < kOuts; ++o) {
      __builtin_memcpy(ends[o], w[o] + k, static_cast<std::size_t>(a.in - k) * sizeof(T));
      tails[o] = ends[o];
    }
    for (int r = 0; r < kRows; ++r) x_tails[r] = x[r] + k / kInWord<T>;
    dot_step(x_tails, tails, 0, sums);
  }
}

/// Loads the first `count` of four numbers.
inline V4 load_four(const float* p, std::int64_t count) {
  V4 x{};
  __builtin_memcpy(&x, p, static_cast<std::size_t>(count) * sizeof(float));
  return x;
}

/// Number of rows of W that are reduced together.
constexpr int kOutsPerTile = 4;

/// Stores elements [first_out, first_out + outs) of row `row` of y.
inline void put_outs(const LinearRows& a, V4 numbers, std::int64_t row, std::int64_t first_out,
                     std::int64_t outs) {
  const std::int64_t at = row * a.y_stride + first_out;
  if (a.scales != nullptr) numbers *= load_four(a.scales + first_out, outs);
  if (a.y_element == Element::f32) {
    put_some(typed<float>(a.y) + at, numbers, outs);
  } else {
    put_some(typed<Bf16>(a.y) + at, numbers, outs);
  }
}

/// Multiplies rows [row, row + kRows) of x with the first `outs` of kOutsPerTile rows of W.
template <class T, int kRows>
inline void dot_tile(const LinearRows& a, std::int64_t row, std::int64_t first_out,
                     std::int64_t outs) {
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = a.x + (row + r) * a.x_stride;
  const T* w[kOutsPerTile];
  for (int o = 0; o < kOutsPerTile; ++o)
    w[o] = typed<T>(a.w) + (first_out - a.w_first_out + (o < outs ? o : 0)) * a.w_stride;
  V sums[kRows][kOutsPerTile];  // `= {}` would clear them in memory before every tile
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kOutsPerTile; ++o) sums[r][o] = V{};
  }
  dot_rows_of(a, x, w, sums);
  for (int r = 0; r < kRows; ++r) put_outs(a, sum_four(sums[r]), row + r, first_out, outs);
}

template <class T, int kRows>
inline void dot_tiles(const LinearRows& a, std::int64_t row, std::int64_t rows,
                      std::int64_t first_out, std::int64_t outs) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return dot_tile<T, kRows>(a, row, first_out, outs);
    dot_tiles<T, kRows - 1>(a, row, rows, first_out, outs);
  }
}

/// Multiplies one row of x with `outs` rows of W, one after another.
template <class T>
inline void dot_stream(const LinearRows& a, std::int64_t first_out, std::int64_t outs) {
  V sums[kOutsPerTile] = {};
  for (std::int64_t o = 0; o < outs; ++o) {
    const T* w = typed<T>(a.w) + (first_out + o) * a.w_stride;
    V sum[1][1] = {};
    dot_rows_of(a, &a.x, &w, sum);
    sums[o] = sum[0][0];
  }
  put_outs(a, sum_four(sums), 0, first_out, outs);
}

/// Bytes of x that stay in the L2 cache while W is read, and the fewest rows per read of W.
constexpr std::int64_t kRowBlockBytes = 384 << 10;
constexpr std::int64_t kRowBlock = 48;
/// Where W is prefetched, many rows are multiplied in blocks of x that stay in the L1 cache, because
/// a thread's part of W is in the L2 cache. Measured on Intel (model 207), a prompt of 1,024 tokens on
/// one thread, medians of the ratios of five pairs: fp32 1.16, bf16 1.23, int8 1.16 (three pairs).
constexpr std::int64_t kBlockBytesInL1 = 24 << 10;

/// Returns the number of rows of x that are multiplied per read of W, a multiple of a tile's rows
/// if they fill the cache.
inline std::int64_t rows_in_cache(std::int64_t rows, std::int64_t row_bytes,
                                  std::int64_t tile_rows) {
  if (kFetchW && rows >= kManyRows) {
    const std::int64_t tiles = kBlockBytesInL1 / (row_bytes * tile_rows);
    return tile_rows * (tiles > 1 ? tiles : 1);
  }
  const std::int64_t fitting = kRowBlockBytes / (row_bytes * tile_rows) * tile_rows;
  return fitting > kRowBlock ? fitting : kRowBlock;
}

/// Calls body(first row, end row, first out, outs) for tiles of up to kOutsPerTile rows of W. The rows
/// of x, of `row_bytes` each, that are multiplied with a tile stay in the cache.
template <class Body>
inline void for_out_tiles(const LinearRows& a, std::int64_t row_bytes, std::int64_t tile_rows,
                          Body&& body) {
  const std::int64_t at_once = rows_in_cache(a.rows, row_bytes, tile_rows);
  for (std::int64_t block = 0; block < a.rows; block += at_once) {
    const std::int64_t end = block + at_once < a.rows ? block + at_once : a.rows;
    for (std::int64_t o = a.first_out; o < a.last_out; o += kOutsPerTile)
      body(block, end, o, a.last_out - o < kOutsPerTile ? a.last_out - o : kOutsPerTile);
  }
}

/// Multiplies rows [first, end) of x with `outs` rows of W by tiles of kTileRows rows.
template <class T>
inline void dot_row_tiles(const LinearRows& a, std::int64_t first, std::int64_t end,
                          std::int64_t first_out, std::int64_t outs) {
  for (std::int64_t row = first; row < end; row += kTileRows)
    dot_tiles<T, kTileRows>(a, row, end - row < kTileRows ? end - row : kTileRows, first_out, outs);
}

template <class T>
void linear_rows_typed(const LinearRows& a) {
  if (a.rows == 1) {  // reads W once, as one stream
    for (std::int64_t o = a.first_out; o < a.last_out; o += kOutsPerTile)
      dot_stream<T>(a, o, a.last_out - o < kOutsPerTile ? a.last_out - o : kOutsPerTile);
    return;
  }
  const auto row_bytes = a.x_stride * static_cast<std::int64_t>(sizeof(float)) / kInWord<T>;
  for_out_tiles(a, row_bytes, kTileRows,
                [&](std::int64_t first, std::int64_t end, std::int64_t o, std::int64_t outs) {
                  dot_row_tiles<T>(a, first, end, o, outs);
                });
}

/// Converts a row to the dtype of `to` and pads it with zeros up to `stride`.
template <class T, class To>
inline void lay_row(const T* from, To* to, std::int64_t width, std::int64_t stride) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const std::int64_t n = width - i < kLanes ? width - i : kLanes;
    put(to, i, n, get(from, i, n));
  }
  for (std::int64_t i = width; i < stride; ++i) to[i] = 0;
}

template <class T>
void spread_rows_typed(const SpreadRows& a) {
  const T* from = typed<T>(a.x);
  constexpr std::int64_t kPair = 2 * kWide;
  for (std::int64_t r = 0; r < a.rows; ++r, from += a.x_stride) {
    float* to = a.out + r * a.out_stride;
    if (a.weights == Element::bf16 && kInWord<Bf16> == 2) {
      lay_row(from, typed<Bf16>(static_cast<void*>(to)), a.width, a.out_stride);
      continue;
    }
    lay_row(from, to, a.width, a.out_stride);
    if (a.weights == Element::f32) continue;
    for (std::int64_t i = 0; i < a.width; i += kPair) {
      float step[kPair];
      __builtin_memcpy(step, to + i, sizeof(step));
      for (std::int64_t lane = 0; lane < kWide; ++lane) {
        to[i + lane] = step[2 * lane];
        to[i + kWide + lane] = step[2 * lane + 1];
      }
    }
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
