#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/fp8.hpp"

/// Matrices in fp8 (ops/fp8.hpp): largest absolute values, scales and codes.
namespace trireme::ops::cuda {

constexpr unsigned kFp8SignBit = 0x80000000U;
constexpr unsigned kFp8InfinityBits = 0x7f800000U;

/// Compares absolute values by their bits: NaN is larger than all numbers. The result does not
/// depend on the order.
struct LargestBits {
  static float identity() { return 0; }

  static float combine(float a, float b) { return __float_as_uint(a) > __float_as_uint(b) ? a : b; }
};

inline float absolute(float x) {
  return __uint_as_float(__float_as_uint(x) & ~kFp8SignBit);
}

/// Writes the largest absolute value of rows_per_block consecutive rows per block.
template <class T>
void fp8_amax(const Fp8Amax& a) {
  const bool packed = is_packed<T>(a.width, a.x) && a.stride % kPack<T> == 0;
  const std::int64_t begin = blockIdx.x * a.rows_per_block;
  const std::int64_t wanted = begin + a.rows_per_block;
  const std::int64_t end = wanted < a.rows ? wanted : a.rows;
  float largest = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = typed<T>(a.x) + row * a.stride;
    for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      const Floats<n> values = load<n>(x + i);
      for (int j = 0; j < n; ++j) largest = LargestBits::combine(largest, absolute(values[j]));
    });
  }
  largest = combine_block<LargestBits>(largest);
  if (threadIdx.x == 0) a.largest[blockIdx.x] = largest;
}

/// Writes the largest absolute values of kPack<T> columns per lane. Warp w reads the rows w,
/// w + 8, ... of the block, then the first warp combines the results of the warps.
template <class T>
void fp8_column_amax(const Fp8Amax& a) {
  constexpr int n = kPack<T>;
  constexpr int kWarps = kFp8Threads / 32;
  __shared__ float parts[kWarps][32 * n];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * 32 + lane) * n;
  const bool packed = is_packed<T>(a.width, a.x) && a.stride % n == 0;
  const std::int64_t begin = blockIdx.y * a.rows_per_block;
  const std::int64_t wanted = begin + a.rows_per_block;
  const std::int64_t end = wanted < a.rows ? wanted : a.rows;
  Floats<n> largest{};
#pragma unroll 4
  for (std::int64_t row = begin + warp; row < end && first < a.width; row += kWarps) {
    const T* x = typed<T>(a.x) + row * a.stride + first;
    if (packed) {
      const Floats<n> values = load<n>(x);
      for (int j = 0; j < n; ++j)
        largest[j] = LargestBits::combine(largest[j], absolute(values[j]));
    } else {
      for (int j = 0; j < n && first + j < a.width; ++j)
        largest[j] = LargestBits::combine(largest[j], absolute(widen(x[j])));
    }
  }
  for (int j = 0; j < n; ++j) parts[warp][j * 32 + lane] = largest[j];
  __syncthreads();
  if (warp != 0) return;
  for (int j = 0; j < n && first + j < a.width; ++j) {
    float all = largest[j];
    for (int i = 1; i < kWarps; ++i) all = LargestBits::combine(all, parts[i][j * 32 + lane]);
    a.largest[blockIdx.y * a.width + first + j] = all;
  }
}

/// Computes one scale per thread (ops::fp8_scale).
template <class T>
void fp8_scales(const Fp8Scales& a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const double amax = a.amax[i];
  const double limited = amax < a.least_amax ? a.least_amax : amax;  // keeps NaN
  const auto scale = static_cast<float>(1 / limited * a.largest_code);
  const bool cut = a.power_of_two && scale == scale;
  a.scales[i] = cut ? __uint_as_float(__float_as_uint(scale) & kFp8InfinityBits) : scale;
}

struct E4m3 {
  static constexpr int kShift = 20;                      // bits of fp32 that a code does not have
  static constexpr unsigned kOffset = (127 - 7) << 3;    // difference of the exponents' biases
  static constexpr unsigned kLargest = 0x43e00000U;      // 448 in fp32
  static constexpr unsigned kLeastNormal = 0x3c800000U;  // 2^-6
  static constexpr unsigned kMagic = 0x46800000U;        // 2^14; its last bit is 2^-9
};

struct E5m2 {
  static constexpr int kShift = 21;
  static constexpr unsigned kOffset = (127 - 15) << 2;
  static constexpr unsigned kLargest = 0x47600000U;      // 57344
  static constexpr unsigned kLeastNormal = 0x38800000U;  // 2^-14
  static constexpr unsigned kMagic = 0x43000000U;        // 2^7; its last bit is 2^-16
};

/// Rounds to the nearest code, ties to even. Values beyond the largest one become the largest code.
template <class Format>
inline unsigned fp8_code(float x) {
  const unsigned bits = __float_as_uint(x);
  const unsigned magnitude = bits & ~kFp8SignBit;
  const unsigned limited = magnitude < Format::kLargest ? magnitude : Format::kLargest;
  const unsigned odd = (limited >> Format::kShift) & 1U;
  const unsigned half = (1U << (Format::kShift - 1)) - 1;
  const unsigned normal = ((limited + half + odd) >> Format::kShift) - Format::kOffset;
  // The sum is rounded at the last bit of the smallest codes.
  const float sum = __uint_as_float(limited) + __uint_as_float(Format::kMagic);
  const unsigned subnormal = __float_as_uint(sum) - Format::kMagic;
  const unsigned code = limited < Format::kLeastNormal ? subnormal : normal;
  return (magnitude > kFp8InfinityBits ? 0x7fU : code) | (bits >> 24 & 0x80U);
}

/// Rounds four values to codes, the first one in the lowest byte.
template <class Format>
inline unsigned fp8_codes(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // The instruction saturates, and the code of NaN is 0x7f: on a GPU, the product of a NaN has no
  // sign.
  unsigned short low;
  unsigned short high;
  if constexpr (Format::kShift == 20) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
  }
  return low | static_cast<unsigned>(high) << 16;
#else
  return fp8_code<Format>(a) | fp8_code<Format>(b) << 8 | fp8_code<Format>(c) << 16 |
         fp8_code<Format>(d) << 24;
#endif
}

inline float scale_of(const Fp8Codes& codes, std::int64_t row) {
  return codes.scale[codes.has_scales ? row : 0];
}

/// Writes the reciprocals of the scales of up to kFp8Tile rows of the codes.
inline void write_inverse_scales(const Fp8Codes& codes, std::int64_t first, std::int64_t end) {
  if (codes.codes == nullptr || (!codes.has_scales && first > 0)) return;
  const std::int64_t row = first + threadIdx.x;
  const std::int64_t last = first + kFp8Tile < end ? first + kFp8Tile : end;
  if (row < (codes.has_scales ? last : 1)) codes.inverse_scale[row] = 1 / codes.scale[row];
}

/// Multiplies n values by a scale, or each by its own scale, and rounds them to codes.
template <class Format, int n, class Scale>
inline Pack<unsigned, n / 4> scaled_codes(const Floats<n>& x, const Scale& scale_at) {
  Pack<unsigned, n / 4> words;
  for (int j = 0; j < n; j += 4)
    words.elements[j / 4] =
        fp8_codes<Format>(x[j] * scale_at(j), x[j + 1] * scale_at(j + 1),
                          x[j + 2] * scale_at(j + 2), x[j + 3] * scale_at(j + 3));
  return words;
}

template <int words>
inline unsigned char code_of(const Pack<unsigned, words>& codes, int i) {
  return static_cast<unsigned char>(codes.elements[i / 4] >> 8 * (i % 4));
}

/// Loads n columns from `column` on, as far as they exist; other values are zero.
template <bool packed, class T, int n = kPack<T>>
inline Floats<n> load_columns(const QuantizeFp8& a, std::int64_t row, std::int64_t column) {
  Floats<n> values{};
  const T* x = typed<T>(a.x) + row * a.stride + column;
  if constexpr (packed) {
    if (column < a.width) values = load<n>(x);
  } else {
    for (int j = 0; j < n && column + j < a.width; ++j) values[j] = widen(x[j]);
  }
  return values;
}

/// Stores the codes of n columns from `column` on, as far as they exist.
template <bool packed, int n>
inline void store_columns(const QuantizeFp8& a, std::int64_t row, std::int64_t column,
                          const Pack<unsigned, n / 4>& words) {
  unsigned char* codes = a.by_rows.codes + row * a.width + column;
  if constexpr (packed) {
    if (column < a.width) *reinterpret_cast<Pack<unsigned, n / 4>*>(codes) = words;
  } else {
    for (int j = 0; j < n && column + j < a.width; ++j) codes[j] = code_of(words, j);
  }
}

/// A transposed tile in shared memory: a row has the codes of one column of x. The padding avoids
/// bank conflicts.
constexpr int kFp8TileWords = kFp8Tile / 4;
using Fp8TileRow = unsigned[kFp8TileWords + 1];

inline void store_tile(const QuantizeFp8& a, const Fp8TileRow* tile, std::int64_t first_row,
                       std::int64_t first_column) {
#pragma unroll
  for (int step = 0; step < kFp8Tile * kFp8TileWords / kFp8Threads; ++step) {
    const int i = static_cast<int>(threadIdx.x) + step * kFp8Threads;
    const int word = i % kFp8TileWords;
    const std::int64_t row = first_column + i / kFp8TileWords;
    const std::int64_t column = first_row + 4 * word;
    if (row < a.width && column < a.pitch)
      *reinterpret_cast<unsigned*>(a.by_columns.codes + row * a.pitch + column) =
          tile[i / kFp8TileWords][word];
  }
}

/// Quantizes one tile. A thread has n adjacent columns in several rows.
template <bool packed, class T, class Format>
inline void quantize_tile(const QuantizeFp8& a, Fp8TileRow* tile) {
  constexpr int n = kPack<T>;
  constexpr int kLanes = kFp8Tile / n;  // threads of a row
  constexpr int kRows = kFp8Threads / kLanes;
  constexpr int kSteps = kFp8Tile / kRows;
  const auto tiles = static_cast<unsigned>((a.width + kFp8Tile - 1) / kFp8Tile);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x / tiles) * kFp8Tile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x % tiles) * kFp8Tile;
  if (first_column == 0) write_inverse_scales(a.by_rows, first_row, a.rows);
  if (first_row == 0) write_inverse_scales(a.by_columns, first_column, a.width);

  const int own_row = static_cast<int>(threadIdx.x) / kLanes;
  const int own_column = static_cast<int>(threadIdx.x) % kLanes * n;
  const std::int64_t column = first_column + own_column;
  const bool by_rows = a.by_rows.codes != nullptr;
  const bool by_columns = a.by_columns.codes != nullptr;
  Floats<n> values[kSteps];
  Floats<kSteps> row_scales{};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {  // all loads before the first store
    const std::int64_t row = first_row + own_row + step * kRows;
    values[step] = row < a.rows ? load_columns<packed, T>(a, row, column) : Floats<n>{};
    if (by_rows && row < a.rows) row_scales[step] = scale_of(a.by_rows, row);
  }
  const bool one_scale = !a.by_rows.has_scales && a.by_rows.scale == a.by_columns.scale;
  Floats<n> scales{};
  for (int j = 0; j < n && by_columns && column + j < a.width; ++j)
    scales[j] = scale_of(a.by_columns, column + j);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int tile_row = own_row + step * kRows;
    const std::int64_t row = first_row + tile_row;
    Pack<unsigned, n / 4> words{};  // rows of the padding are zeros, whatever the scale is
    if (by_rows && row < a.rows) {
      words = scaled_codes<Format>(values[step], [&](int) { return row_scales[step]; });
      store_columns<packed, n>(a, row, column, words);
    }
    if (!by_columns) continue;
    if (!(by_rows && one_scale) && row < a.rows)
      words = scaled_codes<Format>(values[step], [&](int j) { return scales[j]; });
    for (int j = 0; j < n; ++j)
      reinterpret_cast<unsigned char*>(tile[own_column + j])[tile_row] = code_of(words, j);
  }
  if (!by_columns) return;
  __syncthreads();
  store_tile(a, tile, first_row, first_column);
}

template <class T, class Format>
inline void quantize_tile(const QuantizeFp8& a, Fp8TileRow* tile) {
  if (is_packed<T>(a.width, a.x) && a.stride % kPack<T> == 0) {
    quantize_tile<true, T, Format>(a, tile);
  } else {
    quantize_tile<false, T, Format>(a, tile);
  }
}

/// Quantizes one tile of the matrix per block.
template <class T>
void quantize_fp8(const QuantizeFp8& a) {
  __shared__ Fp8TileRow tile[kFp8Tile];
  if (a.is_e5m2) {
    quantize_tile<T, E5m2>(a, tile);
  } else {
    quantize_tile<T, E4m3>(a, tile);
  }
}

}  // namespace trireme::ops::cuda
