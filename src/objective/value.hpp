#pragma once
#include "objective/objective.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// Critics: a scalar head on the hidden states of a transformer, read at each target.
namespace trireme::objective {

struct ValueConfig {
  double clip = 0.2;    // largest change of a value that the loss rewards
  double weight = 0.5;  // factor of the gradient
};

/// Trains a critic on the returns of generated answers (data::PolicyTarget::value_target). With the
/// value v that the head gives now, the value o that it gave after the generation, and the return R,
/// the loss of a target is
///   0.5 max((v - R)^2, (clip(v, o - value_clip, o + value_clip) - R)^2),
/// times the weight of the target. The head is that of a reward model (declare_reward_head). The
/// hidden states are those after the final norm of the model; the head adds no second norm. The
/// output matrix of the model gets no gradient. Source: Ouyang et al., "Training language models to
/// follow instructions with human feedback", 2022, and the clipping of OpenAI's baselines (PPO2).
///
/// The loss that forward() returns has no factor ValueConfig::weight; its gradients have it.
class ValueObjective final : public Objective {
 public:
  struct Setup {
    parallel::ParamId lm_head = 0;  // the model's output matrix
    std::int64_t hidden_size = 0;
    ValueConfig config = {};
    bool has_head = true;  // false: the rank has no last stage and declares nothing
    parallel::TensorGroup tensor = {};
  };

  /// Declares the head. `registry` must outlive this object.
  ValueObjective(parallel::ParamRegistry& registry, const Setup& setup);

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;

  /// Throws Error(internal): no task validates this loss.
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;

  /// Returns the values [N] fp64 of the targets of this rank, in host memory. `hidden` [B, T, D] holds the
  /// states of the model after its final norm.
  [[nodiscard]] at::Tensor values(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const;

 private:
  parallel::ParamRegistry& registry_;
  Setup setup_;
  parallel::ParamId head_ = 0;
};

}  // namespace trireme::objective
