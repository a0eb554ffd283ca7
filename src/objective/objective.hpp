#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>

#include "parallel/microbatch.hpp"

namespace trireme::objective {

/// The gradients of one micro-batch that an objective computes in forward, for its backward.
struct ObjectiveGrads {
  at::Tensor grad_hidden;  // [B, T, D], of the hidden states; the model consumes it
  at::Tensor grad_head;    // [V, D], of the head's weight; undefined if the head is frozen
};

/// The unit that a loss sums over. The loss of an update and all reported means are sums divided by
/// the number of these units.
enum class LossTerm { target, pair, answer };

/// The training objective: owns the head, the loss and their gradients. The model ends at its
/// hidden states; neither the model nor the training step depends on the objective.
class Objective {
 public:
  virtual ~Objective() = default;

  [[nodiscard]] virtual LossTerm term() const { return LossTerm::target; }

  /// Returns true if forward() and backward() neither read values back from the device nor record
  /// measures. The training loop may then start an update before it knows the loss of the last one.
  [[nodiscard]] virtual bool keeps_values_on_device() const { return false; }

  /// Returns true if forward() and backward() run the same operations for all micro-batches of one
  /// shape, and read batch.grad_scale. A CUDA graph can then contain both.
  [[nodiscard]] virtual bool has_fixed_shapes() const { return false; }

  /// Computes reference values that forward() or evaluate() needs. Every rank of pp calls it before
  /// the passes of these micro-batches (collective).
  virtual void prepare(std::span<const parallel::Microbatch> /*micro_batches*/) {}

  /// Returns true if forward() and evaluate() need values of the whole update or validation.
  [[nodiscard]] virtual bool surveys() const { return false; }

  /// Computes these values, if surveys() is true. Called with all micro-batches of an update or
  /// validation, in one or more parts, before the passes of the first one. `last` is true for the
  /// last part. Collective over all ranks.
  virtual void survey(std::span<const parallel::Microbatch> /*micro_batches*/, bool /*last*/) {}

  /// Computes the loss from hidden [B, T, D], the model's states after the final norm. Returns the
  /// sum of the losses of the batch (scalar, fp32 or fp64). Stores in `saved` the gradients of
  /// grad_scale * that sum; the registry is not changed. Ranks of cp hold parts of a batch, and
  /// their losses add up to the loss of the batch. All ranks of tp return the same sum.
  virtual at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                             double grad_scale, ObjectiveGrads& saved) = 0;

  virtual void backward(ObjectiveGrads& saved) = 0;

  /// Returns the names of further values of evaluate(): "accuracy" is reported as "valid_accuracy".
  [[nodiscard]] virtual std::span<const std::string_view> evaluated() const { return {}; }

  /// Makes evaluate() also count text, for bits per byte. `token_bytes` [classes] int64, on the
  /// device of the model: the number of text bytes of each token. Returns false, without effect, if
  /// the loss is not -log p of targets.
  virtual bool count_text(const at::Tensor& /*token_bytes*/) { return false; }

  /// Computes values for validation, without gradients: the loss sum, then one sum per name in
  /// evaluated(). The sums add up over batches and ranks and are then divided by the number of
  /// terms. After count_text(), two more sums follow: -log p of the targets with text bytes,
  /// without weights, and the number of these bytes. The result is a scalar, or a vector in fp64
  /// if there are several sums.
  [[nodiscard]] virtual at::Tensor evaluate(const parallel::Microbatch& batch,
                                            const at::Tensor& hidden) const = 0;
};

}  // namespace trireme::objective
