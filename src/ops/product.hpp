#pragma once
#include <ATen/core/Tensor.h>

/// Matrix products of whole micro-batches, in the factors' dtype. On a CPU that multiplies fp32 faster
/// than 16 bits the factors of bf16 and fp16 are widened, blocks of rows at a time: the same sums in
/// fp32, in another order. Without autograd.
namespace trireme::ops {

/// Whether products of x's dtype are formed from fp32. The same on every start on one kind of CPU.
bool widens_products(const at::Tensor& x);

/// a [.., k] times b [k, n] -> [.., n], of a's dtype.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// The same into out [m, n], of a's dtype; a [m, k].
void put_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out);
/// The same added to `sum`.
void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum);
/// a^T b, a [m, k], b [m, n] -> [k, n]: a gradient of weights. Of their dtype, or fp32 where widened.
at::Tensor outer_product(const at::Tensor& a, const at::Tensor& b);

/// What these are where factors are widened; for tests on any machine.
namespace widened {

at::Tensor product(const at::Tensor& a, const at::Tensor& b);
void put_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out);
void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum);
at::Tensor outer_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace widened
}  // namespace trireme::ops
