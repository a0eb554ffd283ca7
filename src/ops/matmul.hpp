#pragma once
#include <ATen/core/Tensor.h>

/// Products of large bf16 matrices on CPUs with fast instructions for pairs of bf16 (AVX-512 bf16),
/// beside LibTorch's products. The functions of `product.hpp` choose between them.
namespace trireme::ops {

/// Returns true if this CPU has kernels for pair_matmul() and x is bf16 in host memory.
bool has_pair_matmul(const at::Tensor& x);

/// Returns true if pair_matmul() multiplies a [.., k] by b [k, n] and is expected to be faster than
/// LibTorch. The answer depends on the kind of CPU, the dtypes and the shapes only.
bool takes_pair_matmul(const at::Tensor& a, const at::Tensor& b);

/// Writes a b to out, or adds it to out. takes_pair_matmul() must be true.
///   a    [m, k]; any strides, as for b
///   b    [k, n]
///   out  [m, n] in any dtype; no memory in common with a or b
/// Sums are in fp32, and a result is rounded once. The bits do not depend on the number of threads.
void pair_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, bool add);

}  // namespace trireme::ops
