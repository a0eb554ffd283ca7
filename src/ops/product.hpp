#pragma once
#include <ATen/core/Tensor.h>

/// Matrix products of whole micro-batches in the dtype of the factors, without autograd. `matmul.hpp`
/// computes large products on CPUs with AVX-512. Otherwise, on a CPU that multiplies fp32 faster than
/// 16-bit types, bf16 and fp16 factors are widened, blocks of rows at a time: the same fp32 sums in
/// another order. LibTorch computes all others.
namespace trireme::ops {

/// Returns true if products of x's dtype are computed with factors that were widened to fp32. The
/// answer is constant for one kind of CPU.
bool widens_products(const at::Tensor& x);

/// Multiplies a [.., k] with b [k, n]: [.., n] in a's dtype.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// Writes the product of a [m, k] and b to out [m, n] in a's dtype.
void put_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out);
void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum);
/// Computes a weight gradient a^T b [k, n] from a [m, k], b [m, n]. For 16-bit factors, the result is
/// fp32 if widened, from `matmul.hpp` and on a GPU, so that it is not rounded before it is added to
/// fp32 sums.
at::Tensor outer_product(const at::Tensor& a, const at::Tensor& b);
/// Adds a weight gradient a^T b to sum [k, n], which may be of a wider dtype.
void add_outer_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum);

/// The implementations with widened factors, exposed for tests on any machine.
namespace widened {

at::Tensor product(const at::Tensor& a, const at::Tensor& b);
void put_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out);
void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum);
at::Tensor outer_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace widened
}  // namespace trireme::ops
