#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"
#include "ops/rms_norm.hpp"

/// The norm of a model over the last dim: RMSNorm (rms_norm.hpp) or LayerNorm,
/// y = weight * (x - mean(x)) / sqrt(var(x) + eps) + bias.
///
/// LayerNorm has one tensor for both: [2D], the weight first. Its statistics are [2, rows]: mean and
/// 1 / standard deviation. It is computed in fp32 (fp64 for fp64) by ATen and rounded once to x's
/// dtype; there are no fused kernels for it.
/// Source: Ba et al., "Layer normalization", 2016.
namespace trireme::ops {

enum class NormKind { rms, layer };

struct NormSetup {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;
  Path path = Path::fast;
};

/// Like rms_norm_forward. RmsNormOutput::rstd holds the statistics.
RmsNormOutput norm_forward(const at::Tensor& x, const at::Tensor& weight, const NormSetup& setup);

/// Like rms_norm_backward. RmsNormGrads::weight has the shape of `weight`. `want_y` is for RMSNorm.
RmsNormGrads norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& statistics, const NormSetup& setup,
                           bool want_y = false);

/// Like add_rms_norm_forward.
AddRmsNormOutput add_norm_forward(const at::Tensor& x, const at::Tensor& residual,
                                  const at::Tensor& weight, const NormSetup& setup);

/// Like add_rms_norm_backward. `want_y` is for RMSNorm.
RmsNormGrads add_norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                               const at::Tensor& sum, const at::Tensor& weight,
                               const at::Tensor& statistics, const NormSetup& setup,
                               bool want_y = false);

}  // namespace trireme::ops
