#include "model/layer.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

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
  const at::Tensor output = run_with_graph(layer, batch, tape.input);
  tape.graph = torch::autograd::impl::gradient_edge(output);
  return output.detach();
}

at::Tensor layer_backward(const Layer& layer, const Microbatch& batch, LayerTape& tape,
                          const at::Tensor& grad) {
  if (!tape.graph.is_valid())
    tape.graph = torch::autograd::impl::gradient_edge(run_with_graph(layer, batch, tape.input));
  const torch::autograd::Edge input(torch::autograd::impl::grad_accumulator(tape.input), 0);
  const auto grads = torch::autograd::Engine::get_default_engine().execute(
      {tape.graph}, {grad}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/false, {input});
  tape = {};
  return grads[0];
}

}  // namespace trireme
