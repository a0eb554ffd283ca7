#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"

/// Root-mean-square norm: y = weight * x * rsqrt(mean(x^2) + eps) over the last dim.
/// Computed in fp32 (fp64 for fp64) and rounded once, to x's dtype.
///   x       [.., D], any strides; weight [D], same dtype as x
///   rstd    [rows], fp32 or fp64: 1 / root mean square of every row, what backward needs
/// Weight gradients are fp32 (fp64 for fp64). Throws Error(internal) if the shapes or dtypes do not
/// fit. Source: Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
namespace trireme::ops {

struct RmsNormOutput {
  at::Tensor y;
  at::Tensor rstd;
};

struct RmsNormGrads {
  at::Tensor x;
  at::Tensor weight;
};

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                               Path path = Path::fast);
RmsNormGrads rms_norm_backward(const at::Tensor& grad_y, const at::Tensor& x,
                               const at::Tensor& weight, const at::Tensor& rstd,
                               Path path = Path::fast);

/// The residual add before a norm, in the same pass: sum = x + residual (rounded
/// to x's dtype), y = norm(sum). `residual` may be undefined: zero, and sum is x itself.
struct AddRmsNormOutput {
  at::Tensor sum;
  at::Tensor y;
  at::Tensor rstd;
};

AddRmsNormOutput add_rms_norm_forward(const at::Tensor& x, const at::Tensor& residual,
                                      const at::Tensor& weight, double eps, Path path = Path::fast);

/// `grad_sum` (what flows into the sum from elsewhere) may be undefined: zero.
/// RmsNormGrads::x is the gradient of x and of the residual alike.
RmsNormGrads add_rms_norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                                   const at::Tensor& sum, const at::Tensor& weight,
                                   const at::Tensor& rstd, Path path = Path::fast);

}  // namespace trireme::ops
