#pragma once
#include <ATen/core/Tensor.h>

/// Products of large fp32 and bf16 matrices on CPUs with AVX-512, beside LibTorch's products. Factors
/// of bf16 are multiplied in pairs where this CPU does that fast, else they are converted to fp32
/// while they are packed. The functions of `product.hpp` choose between both.
namespace trireme::ops {

/// Returns true if this CPU has kernels for x's dtype that are faster than LibTorch, x is in host
/// memory, and `matmul` is not in train.plain_ops. The answer does not depend on the shape.
bool has_packed_matmul(const at::Tensor& x);

/// Returns true if has_packed_matmul() holds for a [.., k] and b [k, n]. The answer also depends
/// on the shapes.
bool takes_packed_matmul(const at::Tensor& a, const at::Tensor& b);

/// Writes a b to out, or adds it to out. The CPU must have the kernels.
///   a    [m, k]; any strides, as for b
///   b    [k, n]
///   out  [m, n] in any dtype; no memory in common with a or b
/// Sums are in fp32, and a result is rounded once. The bits do not depend on the number of threads.
void packed_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, bool add);

}  // namespace trireme::ops
