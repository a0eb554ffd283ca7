#include "model/layer.hpp"

#include <torch/csrc/autograd/autograd.h>

namespace trireme {
namespace {

at::Tensor run_with_graph(const Layer& layer, const Microbatch& batch, const at::Tensor& x) {
  const at::AutoGradMode with_grad(true);
  x.requires_grad_(true);
  return layer.forward(batch, x);
}

}  // namespace

at::Tensor layer_forward(const Layer& layer, const Microbatch& batch, const at::Tensor& x,
                         Recompute recompute, LayerTape& tape) {
  tape.input = x.detach();
  if (recompute == Recompute::full) {
    const at::NoGradGuard no_grad;
    return layer.forward(batch, tape.input);
  }
  tape.output = run_with_graph(layer, batch, tape.input);
  return tape.output.detach();
}

at::Tensor layer_backward(const Layer& layer, const Microbatch& batch, LayerTape& tape,
                          const at::Tensor& grad) {
  if (!tape.output.defined()) tape.output = run_with_graph(layer, batch, tape.input);
  const auto grads = torch::autograd::grad({tape.output}, {tape.input}, {grad});
  tape = {};
  return grads[0];
}

}  // namespace trireme
