#include "ops/norm.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "core/operation_record.hpp"

namespace trireme::ops {
namespace {

/// The weight and the bias of LayerNorm in the dtype of sums.
struct WeightAndBias {
  at::Tensor weight;
  at::Tensor bias;

  WeightAndBias(const at::Tensor& x, const at::Tensor& both) {
    const std::int64_t width = x.size(-1);
    if (both.dim() != 1 || both.size(0) != 2 * width)
      fail(ErrorKind::internal, "layer_norm: x {} and weight {}: must be [.., D] and [2D]",
           x.sizes(), both.sizes());
    const at::Tensor wide = both.to(accumulate_type(x));
    weight = wide.narrow(0, 0, width);
    bias = wide.narrow(0, width, width);
  }
};

RmsNormOutput layer_forward(const at::Tensor& x, const at::Tensor& both, double eps) {
  const WeightAndBias of(x, both);
  const auto [y, mean, rstd] =
      at::native_layer_norm(x.to(accumulate_type(x)), {x.size(-1)}, of.weight, of.bias, eps);
  return {y.to(x.scalar_type()), at::stack({mean.flatten(), rstd.flatten()})};
}

RmsNormGrads layer_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& both,
                            const at::Tensor& statistics) {
  const WeightAndBias of(x, both);
  const auto type = accumulate_type(x);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  const auto [grad_x, grad_weight, grad_bias] = at::native_layer_norm_backward(
      grad_y.to(type), x.to(type), {x.size(-1)}, statistics[0].view(shape),
      statistics[1].view(shape), of.weight, of.bias, {true, true, true});
  return {grad_x.to(x.scalar_type()), at::cat({grad_weight, grad_bias})};
}

}  // namespace

RmsNormOutput norm_forward(const at::Tensor& x, const at::Tensor& weight, const NormSetup& setup) {
  if (setup.kind == NormKind::rms) return rms_norm_forward(x, weight, setup.eps, setup.path);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::norm);
  return layer_forward(x, weight, setup.eps);
}

RmsNormGrads norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& statistics, const NormSetup& setup, bool want_y) {
  if (setup.kind == NormKind::rms)
    return rms_norm_backward(grad_y, x, weight, statistics, setup.path, want_y);
  TRIREME_ASSERT(!want_y);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::norm);
  return layer_backward(grad_y, x, weight, statistics);
}

AddRmsNormOutput add_norm_forward(const at::Tensor& x, const at::Tensor& residual,
                                  const at::Tensor& weight, const NormSetup& setup) {
  if (setup.kind == NormKind::rms)
    return add_rms_norm_forward(x, residual, weight, setup.eps, setup.path);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::norm);
  const at::Tensor sum = residual.defined() ? x + residual : x;
  auto [y, statistics] = layer_forward(sum, weight, setup.eps);
  return {sum, std::move(y), std::move(statistics)};
}

RmsNormGrads add_norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                               const at::Tensor& sum, const at::Tensor& weight,
                               const at::Tensor& statistics, const NormSetup& setup, bool want_y) {
  if (setup.kind == NormKind::rms)
    return add_rms_norm_backward(grad_y, grad_sum, sum, weight, statistics, setup.path, want_y);
  TRIREME_ASSERT(!want_y);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::norm);
  RmsNormGrads grads = layer_backward(grad_y, sum, weight, statistics);
  if (grad_sum.defined()) grads.x = grads.x + grad_sum;
  return grads;
}

}  // namespace trireme::ops
