#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"

/// RMSNorm: y = weight * x * rsqrt(mean(x^2) + eps) over the last dim, computed in fp32 (fp64 for
/// fp64) and rounded once to x's dtype.
///   x       [.., D], any strides; weight [D], same dtype as x
///   rstd    [rows], fp32 or fp64: 1 / RMS of every row, needed by backward
/// Weight gradients are fp32 (fp64 for fp64). Throws Error(internal) if shapes or dtypes do not
/// match. Source: Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
namespace trireme::ops {

struct RmsNormOutput {
  at::Tensor y;
  at::Tensor rstd;
};

struct RmsNormGrads {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor y{};  // with `want_y`: the result of forward, from the same pass over memory
};

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                               Path path = Path::fast);
RmsNormGrads rms_norm_backward(const at::Tensor& grad_y, const at::Tensor& x,
                               const at::Tensor& weight, const at::Tensor& rstd,
                               Path path = Path::fast, bool want_y = false);

/// The residual add fused with a norm: sum = x + residual (rounded to x's dtype), y = norm(sum). If
/// `residual` is undefined, sum is x itself.
struct AddRmsNormOutput {
  at::Tensor sum;
  at::Tensor y;
  at::Tensor rstd;
};

AddRmsNormOutput add_rms_norm_forward(const at::Tensor& x, const at::Tensor& residual,
                                      const at::Tensor& weight, double eps, Path path = Path::fast);

/// `grad_sum` is the gradient of the sum from its other uses; undefined: zero. RmsNormGrads::x is
/// the gradient of both x and the residual.
RmsNormGrads add_rms_norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                                   const at::Tensor& sum, const at::Tensor& weight,
                                   const at::Tensor& rstd, Path path = Path::fast,
                                   bool want_y = false);

}  // namespace trireme::ops
