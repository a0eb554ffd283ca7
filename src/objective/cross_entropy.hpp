#pragma once
#include "objective/objective.hpp"
#include "ops/path.hpp"
#include "parallel/param_registry.hpp"

namespace trireme {

/// Next-token cross entropy over batch.targets: pretraining and supervised fine-tuning.
class CrossEntropy final : public Objective {
 public:
  /// `head`: the output matrix [V, D] in `registry`, the embedding's where the two are tied.
  CrossEntropy(ParamRegistry& registry, ParamId head, ops::Path path)
      : registry_(registry), head_(head), path_(path) {}

  at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveTape& tape) override;
  at::Tensor backward(ObjectiveTape& tape) override;
  [[nodiscard]] at::Tensor evaluate(const Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  ParamRegistry& registry_;
  ParamId head_;
  ops::Path path_;
};

}  // namespace trireme
