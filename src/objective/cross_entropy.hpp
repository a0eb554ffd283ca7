#pragma once
#include "objective/linear_cross_entropy.hpp"
#include "objective/objective.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme::objective {

enum class LossRows {
  all,
  targets,  // rows with a target: less work if many are masked, but copies the rows
};

/// Next-token cross entropy over batch.targets, each weighted by batch.target_weights. Used for
/// pretraining and supervised fine-tuning.
class CrossEntropy final : public Objective {
 public:
  /// `head` is the output matrix [V, D] in `registry`, or the embedding if the two are tied. The
  /// ranks of `tensor` each hold some of its rows.
  CrossEntropy(parallel::ParamRegistry& registry, parallel::ParamId head, ops::Path path,
               const parallel::TensorGroup& tensor = {}, LossRows rows = LossRows::all)
      : registry_(registry), head_(head), path_(path), tensor_(tensor), rows_(rows) {}

  [[nodiscard]] bool keeps_values_on_device() const override { return true; }

  [[nodiscard]] bool has_fixed_shapes() const override { return rows_ == LossRows::all; }

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;
  bool count_text(const at::Tensor& token_bytes) override;

 private:
  /// Returns -log p of the targets with text, and the bytes of this text: [2] fp64. `loss_sum`: the
  /// loss of all targets, which saves most of the work if the targets have no weights.
  [[nodiscard]] at::Tensor text_sums(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                     const at::Tensor& loss_sum) const;

  /// Fills `saved` if setup.want_grads is true.
  [[nodiscard]] at::Tensor loss_of(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                   LinearCrossEntropySetup setup, ObjectiveGrads& saved) const;

  parallel::ParamRegistry& registry_;
  parallel::ParamId head_;
  ops::Path path_;
  parallel::TensorGroup tensor_;
  LossRows rows_;
  at::Tensor token_bytes_ = {};  // [classes] int64; undefined: text is not counted
};

}  // namespace trireme::objective
