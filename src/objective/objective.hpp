#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>

#include "parallel/microbatch.hpp"

namespace trireme {

/// What an objective's backward of one micro-batch needs.
struct ObjectiveTape {
  at::Tensor grad_hidden;  // [B, T, D], of the hidden states, for the model to take
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

  /// Through the stages of a pipeline: before the passes of these micro-batches, on every rank of pp
  /// (collective). What the losses compare with is computed here, for forward or evaluate of each.
  virtual void prepare(std::span<const Microbatch> /*micro_batches*/) {}

  /// hidden [B, T, D]: the model's states after its last norm. Returns the sum of the losses of the
  /// batch's terms (scalar, fp32 or fp64) and leaves on the tape the gradients of grad_scale * that
  /// sum; no parameter's gradient is touched. Ranks of cp hold parts of a batch: their losses add
  /// up to the batch's. Ranks of tp all have it.
  virtual at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                             ObjectiveTape& tape) = 0;

  /// Adds the head's gradient to the registry; clears the tape.
  virtual void backward(ObjectiveTape& tape) = 0;

  /// What evaluate() gives beside the loss: "accuracy", which a validation reports as
  /// "valid_accuracy".
  [[nodiscard]] virtual std::span<const std::string_view> evaluated() const { return {}; }

  /// For validation, without gradients: the loss sum, then a sum for each of evaluated(), all of
  /// which add up over batches and ranks and are then divided by the number of terms. Scalar, or
  /// where evaluated() has names [1 + names] fp64.
  [[nodiscard]] virtual at::Tensor evaluate(const Microbatch& batch,
                                            const at::Tensor& hidden) const = 0;
};

}  // namespace trireme
