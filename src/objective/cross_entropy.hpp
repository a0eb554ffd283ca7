#pragma once
#include "objective/linear_cross_entropy.hpp"
#include "objective/objective.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme {

/// The rows that logits are computed of.
enum class LossRows {
  all,
  targets,  // those that have a target: less work where many are masked, for one copy of the rows
};

/// Next-token cross entropy over batch.targets, each times its batch.target_weights: pretraining and
/// supervised fine-tuning.
class CrossEntropy final : public Objective {
 public:
  /// `head`: the output matrix [V, D] in `registry`, the embedding's where the two are tied.
  /// `tensor`: the ranks that each hold some of its rows.
  CrossEntropy(ParamRegistry& registry, ParamId head, ops::Path path,
               const TensorGroup& tensor = {}, LossRows rows = LossRows::all)
      : registry_(registry), head_(head), path_(path), tensor_(tensor), rows_(rows) {}

  at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveTape& tape) override;
  void backward(ObjectiveTape& tape) override;
  [[nodiscard]] at::Tensor evaluate(const Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  /// With setup.want_grads fills the tape.
  [[nodiscard]] at::Tensor loss_of(const Microbatch& batch, const at::Tensor& hidden,
                                   ops::LinearCrossEntropySetup setup, ObjectiveTape& tape) const;

  ParamRegistry& registry_;
  ParamId head_;
  ops::Path path_;
  TensorGroup tensor_;
  LossRows rows_;
};

}  // namespace trireme
