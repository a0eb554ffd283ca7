#pragma once
#include "core/measures.hpp"
#include "objective/head.hpp"
#include "objective/objective.hpp"
#include "objective/policy_loss.hpp"
#include "objective/step_means.hpp"

namespace trireme::objective {

/// Returns the log-probabilities [N] fp64 of the targets of this rank under softmax(logits /
/// temperature), in host memory. `hidden` [B, T, D] holds the states of the model after its final
/// norm. Collective over tp.
at::Tensor policy_logprobs(const parallel::Microbatch& batch, const at::Tensor& hidden,
                           const Head& head, double temperature);

/// Learns from the advantages of generated answers (Microbatch::policy).
///
/// A first pass computes the log-probabilities of all targets. They give the loss and the slope of
/// each target. The second pass is cross entropy with one signed weight per row. The hidden states
/// are divided by the temperature, so both passes see the distribution that was sampled.
///
/// Measures, as means over the targets of a step: kl_ref (with a reference), entropy (-logp of the
/// sampled tokens, an unbiased estimate), ratio_mean, clip_fraction, rollout_gap_mean, and for ppo
/// approx_kl (0.5 log(ratio)^2). Maxima:
/// ratio_max, rollout_gap_max. Of the ranks of tp, one reports.
class PolicyObjective final : public Objective {
 public:
  struct Setup {
    parallel::ParamId head = 0;  // [V, D]
    ops::Path path = ops::Path::fast;
    std::int64_t classes = 0;  // token ids of the tokenizer; later rows of the head are padding
    PolicyConfig config = {};
    bool has_reference = true;  // false: reference_logprob of the targets is not set
    parallel::TensorGroup tensor = {};
  };

  /// `registry` and `measures` must outlive this.
  PolicyObjective(parallel::ParamRegistry& registry, const Setup& setup, Measures& measures);

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;

  /// Throws Error(internal): no task validates this loss.
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  void record(std::int64_t step, const at::Tensor& log_probs, const PolicyTerms& terms);

  parallel::ParamRegistry& registry_;
  Setup setup_;
  Measures& measures_;
  StepMeans means_;
  Measures::Id ratio_max_;
  Measures::Id gap_max_;
  std::int64_t step_ = -1;
  double largest_ratio_ = 0;
  double largest_gap_ = 0;
};

}  // namespace trireme::objective
