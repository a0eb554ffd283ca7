#pragma once
#include <memory>

#include "core/measures.hpp"
#include "objective/objective.hpp"
#include "objective/preference_loss.hpp"
#include "objective/step_means.hpp"

namespace trireme::objective {

/// Learns which answer of a preference pair is better (DPO, IPO, ORPO, SimPO).
///
/// A first pass over the targets computes their log-probabilities. Their sum per sequence gives the
/// loss and slope of each pair. The second pass is cross entropy with a signed weight per row. Both
/// passes work on chunks of rows: the full logits never exist, and rows without a target have none.
/// A sequence may be spread over several ranks of cp; rank 0 of them returns the loss of all.
///
/// Measures, as means over the pairs of a step: accuracy (share with reward_chosen >
/// reward_rejected), margin (their difference), reward_chosen, reward_rejected, logp_chosen,
/// logp_rejected (in the configured form), and num_pairs. Validation reports accuracy and margin.
class PreferenceObjective final : public Objective {
 public:
  struct Setup {
    parallel::ParamId head = 0;  // [V, D]
    ops::Path path = ops::Path::fast;
    parallel::TensorGroup tensor = {};
    parallel::ContextGroup context = {};
    PreferenceConfig config = {};
    std::int64_t seq_len = 0;  // train.seq_len
  };

  /// `registry` and `measures` must outlive this.
  PreferenceObjective(parallel::ParamRegistry& registry, const Setup& setup,
                      std::unique_ptr<ReferenceScores> reference, Measures& measures);

  [[nodiscard]] LossTerm term() const override { return LossTerm::pair; }

  void prepare(std::span<const parallel::Microbatch> micro_batches) override {
    reference_->prepare(micro_batches);
  }

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;
  [[nodiscard]] std::span<const std::string_view> evaluated() const override;
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  /// All ranks of cp know the loss of their common rows. Returns true on the rank that reports it.
  [[nodiscard]] bool gives_loss() const {
    return setup_.context.size() == 1 || setup_.context.group->rank() == 0;
  }

  [[nodiscard]] Head head() const {
    return head_of(registry_, setup_.head, setup_.tensor, setup_.path);
  }

  [[nodiscard]] PreferenceTerms terms_of(const parallel::Microbatch& batch,
                                         const SequenceScores& scores) const;

  parallel::ParamRegistry& registry_;
  Setup setup_;
  std::unique_ptr<ReferenceScores> reference_;
  Measures& measures_;
  StepMeans means_;
  Measures::Id num_pairs_;
};

}  // namespace trireme::objective
