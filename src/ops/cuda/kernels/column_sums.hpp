#pragma once
#include <cstdint>

namespace trireme::ops::cuda {

/// Arguments of column_sums: the second stage of weight gradients.
struct ColumnSums {
  const float* rows_in;  // [rows, width]
  float* sums;           // [width]
  std::int64_t rows;
  std::int64_t width;
};

/// A block of column_sums adds 32 columns with 16 warps.
inline constexpr int kSumColumns = 32;
inline constexpr int kSumWarps = 16;

}  // namespace trireme::ops::cuda
