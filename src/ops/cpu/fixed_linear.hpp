#pragma once
#include "ops/cpu/linear.hpp"

/// y = x W^T for inference, with W in int8 and x in fixed point: a row of x is `scale` times
/// integers of 16 bits, which consist of two digits of 8 bits. Integers are multiplied and added
/// exactly, four products per 32-bit lane and instruction (AVX-512 VNNI). Every element of y is
/// computed by the same operations in the same order for any number of rows.
///
/// The instruction multiplies unsigned bytes with signed ones. It gets W + 128, and the sums start
/// at -128 times the sum of the digits.
namespace trireme::ops::kernels {
namespace {

#ifdef __AVX512F__

constexpr float kLargestFixed = 127 * 256 + 127;
constexpr std::int64_t kFixedStep = 64;  // numbers of W per vector
constexpr int kFixedRows = 3;            // rows of x per tile

/// The parts of a row of x in fixed point (fixed_row_bytes).
struct FixedRow {
  FixedHead head;
  const std::int8_t* high;
  const std::int8_t* low;
};

inline FixedRow fixed_row(const LinearRows& a, std::int64_t row) {
  const auto* const bytes = reinterpret_cast<const std::int8_t*>(a.x + row * a.x_stride);
  FixedRow parts{{}, bytes + kFixedHeadBytes, bytes + kFixedHeadBytes + fixed_width(a.in)};
  __builtin_memcpy(&parts.head, bytes, sizeof(parts.head));
  return parts;
}

// The forms of these instructions without a mask read an undefined register, about which g++ 12
// warns.
constexpr __mmask16 kAllLanes = 0xffff;

/// Rounds to the nearest integers.
inline WideI rounded(V x) {
  return (WideI)_mm512_maskz_cvtps_epi32(kAllLanes, (__m512)x);
}

inline void put_digits(std::int8_t* p, WideI digits) {
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(kAllLanes, (__m512i)digits);
  __builtin_memcpy(p, &bytes, sizeof(bytes));
}

inline std::int32_t sum_of(WideI x) {
  std::int32_t sum = 0;
  for (int lane = 0; lane < kWide; ++lane) sum += x[lane];
  return sum;
}

/// Absolute values of a row.
struct RowSizes {
  float largest;
  float mean;  // not finite if an element is not finite
};

template <class T>
inline RowSizes sizes_of(const T* x, std::int64_t width) {
  F most{};
  F sums{};
  for_vectors(width, [&](std::int64_t i, std::int64_t n) {
    const F size = (F)((U)get(x, i, n) & 0x7fffffffU);
    most = larger(size, most);
    sums += size;
  });
  float largest = 0;
  for (int lane = 0; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  return {largest, sum_lanes(sums) / static_cast<float>(width)};
}

/// Returns true if scale and factor of the row are normal numbers, and no element is far above the
/// others.
inline bool is_fine(const RowSizes& row) {
  constexpr float kLargestMean = 1e38F;
  constexpr float kLeastPeak = kLargestFixed * 1e-30F;
  if (row.largest == 0) return row.mean == 0;
  return row.largest > kLeastPeak && row.mean < kLargestMean && row.largest <= kMostPeak * row.mean;
}

template <class T>
void fix_rows_typed(const SpreadRows& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = typed<T>(a.x) + r * a.x_stride;
    auto* const bytes = reinterpret_cast<std::int8_t*>(a.out + r * a.out_stride);
    std::int8_t* high = bytes + kFixedHeadBytes;
    std::int8_t* low = high + fixed_width(a.width);
    const RowSizes sizes = sizes_of(x, a.width);
    const bool fine = is_fine(sizes);
    const bool is_zero = !fine || sizes.largest == 0;
    const float factor = is_zero ? 0 : kLargestFixed / sizes.largest;
    WideI high_sum{};
    WideI low_sum{};
    for (std::int64_t i = 0; i < fixed_width(a.width); i += kLanes) {
      const std::int64_t n = a.width - i < kLanes ? a.width - i : kLanes;
      const WideI number = n > 0 && !is_zero ? rounded((V)(get(x, i, n) * factor)) : WideI{};
      const WideI upper = (number + 128) >> 8;
      const WideI lower = number - (upper << 8);
      put_digits(high + i, upper);
      put_digits(low + i, lower);
      high_sum += upper;
      low_sum += lower;
    }
    const FixedHead head{sizes.largest / kLargestFixed, sum_of(high_sum), sum_of(low_sum), !fine};
    __builtin_memcpy(bytes, &head, sizeof(head));
  }
}

void fix_rows(const SpreadRows& a) {
  if (a.element == Element::f32) return fix_rows_typed<float>(a);
  fix_rows_typed<Bf16>(a);
}

/// Adds the products of four unsigned and four signed bytes to every lane. With the intrinsic
/// function, g++ 12 moves the sums between registers and memory in every step.
inline void add_products(__m512i& sums, __m512i unsigned_bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(unsigned_bytes), "v"(signed_bytes));
}

/// The sums of some elements of y.
template <int kRows, int kOuts>
struct FixedSums {
  __m512i high[kRows][kOuts];
  __m512i low[kRows][kOuts];
};

/// Adds the products of the numbers of W that `mask` selects.
template <int kRows, int kOuts>
inline void fixed_step(const FixedRow* rows, const std::int8_t* const* w, std::int64_t k,
                       __mmask64 mask, FixedSums<kRows, kOuts>& sums) {
  const __m512i offset = _mm512_set1_epi8(-128);
  __m512i numbers[kOuts];
#pragma GCC unroll 4
  for (int o = 0; o < kOuts; ++o)
    numbers[o] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, w[o] + k), offset);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m512i high = _mm512_load_si512(rows[r].high + k);
    const __m512i low = _mm512_load_si512(rows[r].low + k);
#pragma GCC unroll 4
    for (int o = 0; o < kOuts; ++o) {
      add_products(sums.high[r][o], numbers[o], high);
      add_products(sums.low[r][o], numbers[o], low);
    }
  }
}

/// Multiplies kRows rows of x with kOuts rows of W, lane by lane.
template <int kRows, int kOuts>
inline void fixed_products(const FixedRow* rows, const std::int8_t* const* w, std::int64_t in,
                           FixedSums<kRows, kOuts>& out) {
  constexpr __mmask64 kAll = ~__mmask64{0};
  constexpr __mmask16 kFirst = 1;
  FixedSums<kRows, kOuts> sums;  // the compiler keeps them in registers
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kOuts; ++o) {
      sums.high[r][o] = _mm512_maskz_set1_epi32(kFirst, -128 * rows[r].head.high_sum);
      sums.low[r][o] = _mm512_maskz_set1_epi32(kFirst, -128 * rows[r].head.low_sum);
    }
  }
  std::int64_t k = 0;
  for (; k + kFixedStep <= in; k += kFixedStep) {
    if constexpr (kOuts > 1 || kFetchInOrder) {
#pragma GCC unroll 4
      for (int o = 0; o < kOuts; ++o) __builtin_prefetch(w[o] + k + kAhead);
    }
    fixed_step(rows, w, k, kAll, sums);
  }
  if (k < in) fixed_step(rows, w, k, kAll >> (kFixedStep - (in - k)), sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kOuts; ++o) {
      out.high[r][o] = sums.high[r][o];
      out.low[r][o] = sums.low[r][o];
    }
  }
}

/// Adds lanes as integers, so that the offset of W vanishes exactly. Sums may wrap on the way; the
/// total of a row of up to 65,536 numbers fits into 32 bits.
inline V4 total_of(const __m512i* sums) {
  using I4 = std::int32_t __attribute__((vector_size(16)));
  WideU lanes[kOutsPerTile];
  for (int o = 0; o < kOutsPerTile; ++o) lanes[o] = (WideU)sums[o];
  return __builtin_convertvector((I4)sum_four(lanes), V4);
}

/// Like dot_tile, for fixed point. For a single row of x, W is read as one stream.
template <int kRows>
void fixed_tile(const LinearRows& a, std::int64_t row, std::int64_t first_out, std::int64_t outs) {
  FixedRow rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = fixed_row(a, row + r);
  const std::int8_t* w[kOutsPerTile];
  for (int o = 0; o < kOutsPerTile; ++o)
    w[o] = typed<std::int8_t>(a.w) + (first_out + (o < outs ? o : 0)) * a.w_stride;
  FixedSums<kRows, kOutsPerTile> sums;
  if constexpr (kRows == 1) {
    for (int o = 0; o < kOutsPerTile; ++o) {
      FixedSums<1, 1> one;
      fixed_products(rows, w + o, a.in, one);
      sums.high[0][o] = one.high[0][0];
      sums.low[0][o] = one.low[0][0];
    }
  } else {
    fixed_products(rows, w, a.in, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    const V4 total = total_of(sums.high[r]) * 256.0F + total_of(sums.low[r]);
    put_outs(a, total * rows[r].head.scale, row + r, first_out, outs);
  }
}

template <int kRows>
inline void fixed_tiles(const LinearRows& a, std::int64_t row, std::int64_t rows,
                        std::int64_t first_out, std::int64_t outs) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return fixed_tile<kRows>(a, row, first_out, outs);
    fixed_tiles<kRows - 1>(a, row, rows, first_out, outs);
  }
}

void fixed_linear_rows(const LinearRows& a) {
  for_out_tiles(a, a.x_stride * static_cast<std::int64_t>(sizeof(float)), kFixedRows,
                [&](std::int64_t first, std::int64_t end, std::int64_t o, std::int64_t outs) {
                  for (std::int64_t row = first; row < end; row += kFixedRows)
                    fixed_tiles<kFixedRows>(a, row, end - row < kFixedRows ? end - row : kFixedRows,
                                            o, outs);
                });
}

constexpr auto kFixRows = fix_rows;
constexpr auto kFixedLinearRows = fixed_linear_rows;

#else

constexpr decltype(Table::fix_rows) kFixRows = nullptr;
constexpr decltype(Table::fixed_linear_rows) kFixedLinearRows = nullptr;

#endif

}  // namespace
}  // namespace trireme::ops::kernels
