#pragma once
#include <utility>

#include "ops/rms_norm.hpp"
#include "ops/rope.hpp"

/// The explicit pairs of ops over plain tensors, with autograd, so that tests and benches can
/// compare them with what ATen derives. A model has model/weighted.hpp for that.
namespace trireme::ops::testing {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                    Path path = Path::fast);

/// The sum, and its norm.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight, double eps,
                                               Path path = Path::fast);

/// Without values.
std::pair<at::Tensor, at::Tensor> qk_norm_rope(const at::Tensor& q, const at::Tensor& k,
                                               const QkNormRope& setup, Path path = Path::fast);

QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                            std::int64_t num_kv_heads, const QkNormRope& setup,
                            Path path = Path::fast);

}  // namespace trireme::ops::testing
