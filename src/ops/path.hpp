#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::ops {

/// Which implementation an operation may take. Same results up to rounding; tests compare the two.
///   fast   the kernels of x's device and dtype (table in path.cpp); plain where there are none
///   plain  ATen operations only: every device and dtype, fp64 included; the oracle
enum class Path { fast, plain };

/// What train.fused_ops asks for.
inline Path path_of(bool fused) {
  return fused ? Path::fast : Path::plain;
}

/// fp64 for fp64, else fp32: the type of sums, of saved statistics and of weight gradients.
at::ScalarType accumulate_type(const at::Tensor& x);

/// Major compute capability of a GPU (8: Ampere, 9: Hopper); 0 for a CPU.
int cuda_generation(at::Device device);

/// Rows whose weight gradient is summed apart; the sums of all chunks are then added in order, so
/// the result does not depend on the number of threads.
inline constexpr std::int64_t kRowsPerChunk = 256;

}  // namespace trireme::ops
