#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/column_sums.hpp"

/// Sums over rows in two stages, without atomics: the blocks of a kernel write partial sums, and
/// column_sums adds them.
namespace trireme::ops::cuda {

inline constexpr KernelOf<ColumnSums> kColumnSums{{.name = "column_sums",
                                                   .source = "column_sums",
                                                   .arguments = "ColumnSums",
                                                   .max_threads = kSumColumns * kSumWarps,
                                                   .fp32_only = true}};
inline constexpr std::array<const Kernel*, 1> kColumnSumsKernels{&kColumnSums};

/// Upper bound of the static shared memory of the kernels, in bytes.
inline constexpr std::int64_t kStaticSharedBytes = 2048;

/// Consecutive rows per block, and the number of blocks.
struct Chunks {
  std::int64_t count;
  std::int64_t rows;
};

/// Splits rows into at most `most` chunks. The split depends on the number of rows only, so that
/// sums are equal on every device.
Chunks row_chunks(std::int64_t rows, std::int64_t most = 1024);

/// Returns the sums [width] of the rows of x [rows, width], fp32; zeros without rows.
at::Tensor column_sums(const at::Tensor& x);

}  // namespace trireme::ops::cuda
