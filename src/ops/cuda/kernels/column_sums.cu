#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/column_sums.hpp"

namespace trireme::ops::cuda {

/// Adds the rows of each column in an order that depends on the number of rows only. Warp w adds
/// the rows w, w + 16, ..., then the first warp adds the results of the warps.
template <class T>
void column_sums(const ColumnSums& a) {
  __shared__ float parts[kSumWarps][kSumColumns];
  const int lane = static_cast<int>(threadIdx.x % kSumColumns);
  const int warp = static_cast<int>(threadIdx.x / kSumColumns);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + lane;
  float sum = 0;
  if (column < a.width) {
#pragma unroll 8
    for (std::int64_t row = warp; row < a.rows; row += kSumWarps)
      sum += a.rows_in[row * a.width + column];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= a.width) return;
  for (int i = 1; i < kSumWarps; ++i) sum += parts[i][lane];
  a.sums[column] = sum;
}

}  // namespace trireme::ops::cuda
