#pragma once
#include <cstdint>

/// Arguments of the kernels in fp8.cu. The elements of a row of a matrix are adjacent, and two rows
/// begin `stride` elements apart.
namespace trireme::ops::cuda {

inline constexpr int kFp8Tile = 64;  // rows and columns of the tile that a block quantizes
inline constexpr int kFp8Threads = 256;

/// Arguments of fp8_amax and fp8_column_amax. The blocks of fp8_column_amax in y share the columns:
/// each has rows_per_block rows.
struct Fp8Amax {
  const void* x;   // [rows, width] of the element type
  float* largest;  // fp8_amax: [blocks], of all columns; fp8_column_amax: [blocks in y, width]
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t rows_per_block;
  std::int64_t width;
};

struct Fp8Scales {
  const float* amax;  // [count]
  float* scales;      // [count]
  std::int64_t count;
  double largest_code;
  double least_amax;
  bool power_of_two;
};

/// The codes of a matrix, by rows or by columns.
struct Fp8Codes {
  unsigned char* codes;  // null: not wanted
  const float* scale;    // one, or one for each row of the codes
  float* inverse_scale;  // like scale
  bool has_scales;       // one scale for each row of the codes
};

struct QuantizeFp8 {
  const void* x;        // [rows, width] of the element type
  Fp8Codes by_rows;     // [rows, width]
  Fp8Codes by_columns;  // [width, pitch]; the columns from `rows` on are zeros
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t pitch;  // divisible by 4
  bool is_e5m2;        // otherwise e4m3
};

}  // namespace trireme::ops::cuda
