#pragma once
#include <cstdint>

/// Arguments of the kernels in rms_norm.cu. Rows are contiguous; [rows, width] of the element type
/// unless stated otherwise.
namespace trireme::ops::cuda {

struct RmsNormForward {
  const void* x;
  const void* residual;  // null: none
  const void* weight;    // [width]
  void* sum;             // x + residual; unused without residual
  void* y;
  float* rstd;  // [rows]
  std::int64_t width;
  float eps;
};

struct RmsNormBackward {
  const void* grad_y;
  const void* grad_sum;  // null: none
  const void* x;
  const void* weight;  // [width]
  const float* rstd;   // [rows]
  void* grad_x;
  void* y;         // null: not computed
  float* partial;  // [blocks, width]: the weight gradient of the rows of each block
  std::int64_t rows;
  std::int64_t rows_per_block;
  std::int64_t width;
  bool has_shared_sums;  // width floats of dynamic shared memory hold the block's weight gradient
};

}  // namespace trireme::ops::cuda
