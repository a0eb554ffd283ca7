#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <span>
#include <vector>

#include "parallel/microbatch.hpp"
#include "parallel/recompute.hpp"

namespace trireme::model {

/// One layer of the stack: a pure function of its inputs and its weights (model/weighted.hpp).
class Layer {
 public:
  virtual ~Layer() = default;

  /// x and result are [B, T, D]. `sources` are hidden states of earlier layers that the layer also
  /// reads (model/residual_terms.hpp).
  [[nodiscard]] virtual at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& x,
                                           std::span<const at::Tensor> sources) const = 0;
};

/// The saved activations of one layer: its input and, unless the layer is recomputed, the autograd
/// graph of its output. The output itself is not needed.
struct LayerActivations {
  at::Tensor input;
  std::vector<at::Tensor> sources;
  torch::autograd::Edge graph;
};

/// Runs one layer and saves its activations. Autograd records one layer at a time. With
/// Recompute::full only the input is saved and backward runs forward again; dropout masks are
/// functions of the position. With Recompute::selective the layer itself decides.
at::Tensor layer_forward(const Layer& layer, const parallel::Microbatch& batch, const at::Tensor& x,
                         parallel::Recompute recompute, LayerActivations& saved,
                         std::span<const at::Tensor> sources = {});

/// Returns the gradient of the input, adds weight gradients to the registry and clears `saved`. If
/// `source_grads` is set, it receives the gradients of the sources.
at::Tensor layer_backward(const Layer& layer, const parallel::Microbatch& batch,
                          LayerActivations& saved, const at::Tensor& grad,
                          std::vector<at::Tensor>* source_grads = nullptr);

/// Recomputes a tensor in backward, without a graph.
using RecomputeFn = std::function<at::Tensor()>;

/// The result of a recomputed function: selective activation checkpointing of a block.
///
/// Each block saves its input, q k v before norm and rotation, the residual sum, gate and up, and
/// one number per row of each norm. Backward recomputes, bit for bit, the inputs of the linears
/// without a graph, and the attention core once with its graph. Source: Korthikanti et al.,
/// "Reducing activation recomputation in large transformer models", 2022.
struct Recomputed {
  at::Tensor y;       // connected to autograd
  RecomputeFn again;  // recomputes y; call it before the backward of y, which uses this result
};

/// Returns compute(x) and saves only x. `compute` uses weights through model/weighted.hpp and must
/// give the same bits each time.
Recomputed recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor& x)> compute);

}  // namespace trireme::model
