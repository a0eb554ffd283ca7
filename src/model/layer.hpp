#pragma once
#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "parallel/microbatch.hpp"
#include "parallel/param_registry.hpp"

namespace trireme {

/// `count` neighbouring parameters used as one matrix (count 1: a parameter alone).
struct WeightRef {
  ParamId first = 0;
  std::size_t count = 1;
};

/// One link of the chain that a model is: a pure function of its input and its weights.
class Layer {
 public:
  virtual ~Layer() = default;

  /// The weights, in the order forward takes them.
  [[nodiscard]] virtual std::span<const WeightRef> weights() const = 0;

  /// x, result: [B, T, D].
  [[nodiscard]] virtual at::Tensor forward(const Microbatch& batch, const at::Tensor& x,
                                           std::span<const at::Tensor> weights) const = 0;
};

/// What a layer's backward needs: its input, and unless it recomputes, its output
/// with the graph between.
struct LayerTape {
  at::Tensor input;
  at::Tensor output;
  std::vector<at::Tensor> weights;
};

/// Runs one layer and records what backward needs. This pair is the seam where sharded weights
/// would be gathered and where weight gradients leave: autograd sees one layer at a time, the
/// registry sees every gradient. `recompute`: keep the input only and run forward again in backward
/// (random masks are functions of position).
at::Tensor layer_forward(const Layer& layer, const ParamRegistry& registry, const Microbatch& batch,
                         const at::Tensor& x, bool recompute, LayerTape& tape);

/// Adds the weights' gradients to the registry and returns the gradient of the input;
/// clears the tape.
at::Tensor layer_backward(const Layer& layer, ParamRegistry& registry, const Microbatch& batch,
                          LayerTape& tape, const at::Tensor& grad);

}  // namespace trireme
