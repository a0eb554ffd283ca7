#pragma once
#include <cstdint>

/// Arguments of the kernels in rope.cu: norm and rotation of the heads of queries and keys.
namespace trireme::ops::cuda {

/// Elements between neighbours of a tensor with dimensions token, position of a sequence and head.
/// The last dimension, of `width` elements, is contiguous.
struct HeadStrides {
  std::int64_t batch;
  std::int64_t position;
  std::int64_t head;
};

/// The queries, or the keys.
struct HeadsPart {
  const void* x;
  HeadStrides x_strides;
  const void* weight;  // [width]; null: no norm
  const void* grad;    // backward: the gradient of the result
  HeadStrides grad_strides;
  void* out;  // forward: the result; backward: the gradient of x
  HeadStrides out_strides;
  float* partial;  // backward with norm: [blocks, width], the weight gradient of each block
  std::int64_t num_heads;
};

/// blockIdx.y selects the part. `lanes` threads, a power of two up to 32, process one head.
struct Heads {
  HeadsPart parts[2];
  const float* cos;  // [positions, width / 2]
  const float* sin;
  const std::int64_t* positions;  // [batch, length]
  std::int64_t length;
  std::int64_t tokens;  // batch * length
  std::int64_t tokens_per_block;
  std::int64_t width;
  int lanes;
  bool packed;  // every row of width / 2 elements can be read by vectors of 16 bytes
  float eps;
};

}  // namespace trireme::ops::cuda
