#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/edge.h>

#include "parallel/microbatch.hpp"
#include "parallel/recompute.hpp"

namespace trireme {

/// One layer of the stack: a pure function of its input and its weights (model/weighted.hpp).
class Layer {
 public:
  virtual ~Layer() = default;

  /// x and result are [B, T, D].
  [[nodiscard]] virtual at::Tensor forward(const Microbatch& batch, const at::Tensor& x) const = 0;
};

/// The saved activations of one layer: its input and, unless the layer is recomputed, the autograd
/// graph of its output. The output itself is not needed.
struct LayerTape {
  at::Tensor input;
  torch::autograd::Edge graph;
};

/// Runs one layer and saves its activations. Autograd records one layer at a time. With
/// Recompute::full only the input is saved and backward runs forward again; dropout masks are
/// functions of the position. With Recompute::selective the layer itself decides.
at::Tensor layer_forward(const Layer& layer, const Microbatch& batch, const at::Tensor& x,
                         Recompute recompute, LayerTape& tape);

/// Returns the gradient of the input, adds weight gradients to the registry and clears `tape`.
at::Tensor layer_backward(const Layer& layer, const Microbatch& batch, LayerTape& tape,
                          const at::Tensor& grad);

}  // namespace trireme
