#pragma once
#include <ATen/core/Tensor.h>

namespace trireme::ops {

/// Which implementation an operation may take. Same results up to rounding; tests compare the two.
///   fast   our CPU kernels for fp32 and bf16, wherever they apply; else the plain one
///   plain  ATen operations only: every device and dtype, fp64 included; the oracle
enum class Path { fast, plain };

/// True if `path` allows our kernels and `x` is a CPU tensor of fp32 or bf16.
bool takes_fast_path(Path path, const at::Tensor& x);

/// fp64 for fp64, else fp32: the type of sums, of saved statistics and of weight gradients.
at::ScalarType accumulate_type(const at::Tensor& x);

}  // namespace trireme::ops
