#pragma once
#include "objective/linear_cross_entropy.hpp"
#include "objective/objective.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme {

/// Next-token cross entropy over batch.targets: pretraining and supervised fine-tuning.
class CrossEntropy final : public Objective {
 public:
  /// `head`: the output matrix [V, D] in `registry`, the embedding's where the two are tied.
  /// `tensor`: the ranks that each hold some of its rows.
  CrossEntropy(ParamRegistry& registry, ParamId head, ops::Path path,
               const TensorGroup& tensor = {})
      : registry_(registry), head_(head), path_(path), tensor_(tensor) {}

  at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveTape& tape) override;
  at::Tensor backward(ObjectiveTape& tape) override;
  [[nodiscard]] at::Tensor evaluate(const Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  [[nodiscard]] ops::LinearCrossEntropyOutput loss_of(
      const Microbatch& batch, const at::Tensor& hidden,
      const ops::LinearCrossEntropySetup& setup) const;

  ParamRegistry& registry_;
  ParamId head_;
  ops::Path path_;
  TensorGroup tensor_;
};

}  // namespace trireme
