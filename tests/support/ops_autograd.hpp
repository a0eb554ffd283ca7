#pragma once
#include <utility>

#include "ops/rms_norm.hpp"
#include "ops/rope.hpp"

/// The forward and backward pairs of ops as autograd functions over plain tensors, so that tests
/// and benches can compare them with the gradients of ATen. Models use model/weighted.hpp instead.
namespace trireme::ops::testing {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                    ops::Path path = ops::Path::fast);

/// Returns the sum and its norm.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight, double eps,
                                               ops::Path path = ops::Path::fast);

/// Works like qkv_norm_rope, for queries and keys without values.
std::pair<at::Tensor, at::Tensor> qk_norm_rope(const at::Tensor& q, const at::Tensor& k,
                                               const ops::QkNormRope& setup,
                                               ops::Path path = ops::Path::fast);

ops::QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                                 std::int64_t num_kv_heads, const ops::QkNormRope& setup,
                                 ops::Path path = ops::Path::fast);

}  // namespace trireme::ops::testing
