#include "model/layer.hpp"

#include <torch/csrc/autograd/autograd.h>

namespace trireme {
namespace {

std::vector<at::Tensor> leaf_weights(const Layer& layer, const ParamRegistry& registry) {
  std::vector<at::Tensor> leaves;
  for (const WeightRef& ref : layer.weights()) {
    leaves.push_back(registry.fused_weight(ref.first, ref.count).detach().requires_grad_(true));
  }
  return leaves;
}

}  // namespace

at::Tensor layer_forward(const Layer& layer, const ParamRegistry& registry, const Microbatch& batch,
                         const at::Tensor& x, bool recompute, LayerTape& tape) {
  tape.weights = leaf_weights(layer, registry);
  tape.input = x.detach();
  if (recompute) {
    const at::NoGradGuard no_grad;
    return layer.forward(batch, tape.input, tape.weights);
  }
  const at::AutoGradMode with_grad(true);
  tape.input.requires_grad_(true);
  tape.output = layer.forward(batch, tape.input, tape.weights);
  return tape.output.detach();
}

at::Tensor layer_backward(const Layer& layer, ParamRegistry& registry, const Microbatch& batch,
                          LayerTape& tape, const at::Tensor& grad) {
  if (!tape.output.defined()) {
    const at::AutoGradMode with_grad(true);
    tape.input.requires_grad_(true);
    tape.output = layer.forward(batch, tape.input, tape.weights);
  }
  std::vector<at::Tensor> inputs{tape.input};
  inputs.insert(inputs.end(), tape.weights.begin(), tape.weights.end());
  const std::vector<at::Tensor> grads = torch::autograd::grad({tape.output}, inputs, {grad});
  tape = {};
  const auto refs = layer.weights();
  for (std::size_t i = refs.size(); i-- > 0;)
    registry.add_gradient(refs[i].first, refs[i].count, grads[i + 1]);
  return grads[0];
}

}  // namespace trireme
