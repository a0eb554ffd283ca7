#pragma once
#include <ATen/core/Tensor.h>

#include "parallel/microbatch.hpp"

namespace trireme {

/// What an objective's backward of one micro-batch needs.
struct ObjectiveTape {
  at::Tensor grad_hidden;  // [B, T, D], of the hidden states
  at::Tensor grad_head;    // [V, D], of the head's weight; undefined where that is frozen
};

/// What a loss sum has terms of; the loss of an update, and all means beside it, are sums divided by
/// their number.
enum class LossTerm { target, pair };

/// What a model is trained for: owns the head, the loss and their gradients. The model ends at its
/// hidden states, and neither it nor the step knows which objective it serves.
class Objective {
 public:
  virtual ~Objective() = default;

  [[nodiscard]] virtual LossTerm term() const { return LossTerm::target; }

  /// hidden [B, T, D]: the model's states after its last norm. Returns the sum of the losses of the
  /// batch's valid targets (scalar, fp32 or fp64) and leaves on the tape the gradients of
  /// grad_scale * that sum; no parameter's gradient is touched.
  virtual at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                             ObjectiveTape& tape) = 0;

  /// Adds the head's gradient to the registry and returns that of the hidden states; clears the
  /// tape.
  virtual at::Tensor backward(ObjectiveTape& tape) = 0;

  /// The loss sum alone, for validation.
  [[nodiscard]] virtual at::Tensor evaluate(const Microbatch& batch,
                                            const at::Tensor& hidden) const = 0;
};

}  // namespace trireme
