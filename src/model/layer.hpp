#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/edge.h>

#include "parallel/microbatch.hpp"
#include "parallel/recompute.hpp"

namespace trireme {

/// One link of the chain that a model is: a pure function of its input and its weights, which it
/// uses through model/weighted.hpp.
class Layer {
 public:
  virtual ~Layer() = default;

  /// x, result: [B, T, D].
  [[nodiscard]] virtual at::Tensor forward(const Microbatch& batch, const at::Tensor& x) const = 0;
};

/// What a layer's backward needs: its input, and unless it recomputes, the graph from its output,
/// which itself may go.
struct LayerTape {
  at::Tensor input;
  torch::autograd::Edge graph;
};

/// Runs one layer and records what backward needs: autograd sees one layer at a time. Recompute
/// full: keeps the input only and runs forward again in backward (random masks are functions of
/// position); selective is the layer's own.
at::Tensor layer_forward(const Layer& layer, const Microbatch& batch, const at::Tensor& x,
                         Recompute recompute, LayerTape& tape);

/// Returns the gradient of the input, while the weights give theirs to the registry; clears the
/// tape.
at::Tensor layer_backward(const Layer& layer, const Microbatch& batch, LayerTape& tape,
                          const at::Tensor& grad);

}  // namespace trireme
