#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/weight_source.hpp"
#include "model/weighted.hpp"
#include "ops/rms_norm.hpp"

/// Operations of the residual stream with a few trained numbers. They save copies of these numbers,
/// because a unit of weights may be freed before backward.
namespace trireme::model::weighted {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Returns the sum of all products of two tensors in fp32 (fp64 for fp64), as [1].
at::Tensor sum_of_products(const at::Tensor& one, const at::Tensor& other) {
  const auto wide = ops::accumulate_type(one);
  return one.to(wide).mul(other).sum().reshape({1});
}

struct Mix : torch::autograd::Function<Mix> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& source,
                            parallel::ParamRegistry* registry, const MixWeights& weights) {
    const Source factor{registry, weights.factor};
    const at::Tensor of_source = factor.weight().mul(weights.sign);
    at::Tensor of_x;
    factor.keep(ctx, "factor");
    if (weights.scale) {
      const Source scale{registry, *weights.scale};
      of_x = scale.weight().clone();
      scale.keep(ctx, "scale");
    }
    ctx->saved_data["sign"] = weights.sign;
    ctx->save_for_backward({of_x.defined() ? x : at::Tensor(), source, of_x, of_source});
    return at::addcmul(of_x.defined() ? x * of_x : x, source, of_source);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Source factor = Source::kept(ctx, "factor");
    if (factor.trained())
      factor.give(sum_of_products(grads[0], saved[1]).mul_(ctx->saved_data["sign"].toDouble()));
    const at::Tensor grad_source = grads[0] * saved[3];
    if (!saved[2].defined()) return {grads[0], grad_source, {}, {}};
    const Source scale = Source::kept(ctx, "scale");
    if (scale.trained()) scale.give(sum_of_products(grads[0], saved[0]));
    return {grads[0] * saved[2], grad_source, {}, {}};
  }
};

struct Smear : torch::autograd::Function<Smear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& previous,
                            parallel::ParamRegistry* registry, const SmearWeights& weights) {
    const Source gate{registry, weights.gate};
    const Source scalar{registry, weights.scalar};
    const at::Tensor of_gate = gate.weight().clone();      // [C]
    const at::Tensor of_scalar = scalar.weight().clone();  // [1]
    const at::Tensor first = x.narrow(-1, 0, of_gate.size(0)).contiguous();
    const at::Tensor sigmoid = first.mul(of_gate).sum(-1, /*keepdim=*/true).sigmoid_();
    gate.keep(ctx, "gate");
    scalar.keep(ctx, "scalar");
    ctx->save_for_backward({first, previous, sigmoid, of_gate, of_scalar});
    return at::addcmul(x, previous, sigmoid * of_scalar);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& sigmoid = saved[2];
    const Source gate = Source::kept(ctx, "gate");
    const Source scalar = Source::kept(ctx, "scalar");
    const auto wide = ops::accumulate_type(grads[0]);
    const at::Tensor along = grads[0].to(wide).mul(saved[1]).sum(-1, /*keepdim=*/true);
    if (scalar.trained()) scalar.give(sum_of_products(along, sigmoid));
    const at::Tensor grad_logit =
        along * saved[4].to(wide) * sigmoid.to(wide) * (1 - sigmoid.to(wide));
    if (gate.trained()) gate.give(grad_logit.mul(saved[0]).flatten(0, -2).sum(0));
    const at::Tensor grad_x = grads[0].clone();
    grad_x.narrow(-1, 0, saved[3].size(0)).add_(grad_logit * saved[3]);
    return {grad_x, grads[0] * (sigmoid * saved[4]), {}, {}};
  }
};

}  // namespace

at::Tensor mix(const at::Tensor& x, const at::Tensor& source, parallel::ParamRegistry& registry,
               const MixWeights& weights) {
  return Mix::apply(x, source, &registry, weights);
}

at::Tensor smear(const at::Tensor& x, const at::Tensor& previous, parallel::ParamRegistry& registry,
                 const SmearWeights& weights) {
  return Smear::apply(x, previous, &registry, weights);
}

}  // namespace trireme::model::weighted
