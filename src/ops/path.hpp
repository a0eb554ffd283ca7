#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::ops {

/// Which implementation an operation may take. Same results up to rounding; tests compare the two.
///   fast   our CPU kernels for fp32 and bf16, wherever they apply; else the plain one
///   plain  ATen operations only: every device and dtype, fp64 included; the oracle
enum class Path { fast, plain };

/// True if `path` allows our kernels and `x` is a CPU tensor of fp32 or bf16.
bool takes_fast_path(Path path, const at::Tensor& x);

/// fp64 for fp64, else fp32: the type of sums, of saved statistics and of weight gradients.
at::ScalarType accumulate_type(const at::Tensor& x);

/// Rows whose weight gradient is summed apart; the sums of all blocks are then added in order, so
/// the result does not depend on the number of threads.
inline constexpr std::int64_t kRowsPerBlock = 256;

}  // namespace trireme::ops
