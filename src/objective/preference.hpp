#pragma once
#include <memory>

#include "core/measures.hpp"
#include "objective/objective.hpp"
#include "objective/preference_loss.hpp"
#include "objective/step_means.hpp"

namespace trireme {

/// Learns which answer of a pair is preferred (DPO, IPO), from batches of pairs.
///
/// A pass over the targets gives their log-probabilities, a sum a sequence gives each pair's loss
/// and its slope, and a second pass is cross entropy with a signed weight a row. Both are chunked
/// over rows: the logits never exist as a whole, and rows without a target have none. Sequences may
/// lie on several ranks of cp; rank 0 of them gives the loss of all.
///
/// Measures, means over the pairs of a step: accuracy (share with reward_chosen > reward_rejected),
/// margin (their difference), reward_chosen, reward_rejected, logp_chosen, logp_rejected (in the
/// form of the configuration); num_pairs. A validation has accuracy and margin.
class PreferenceObjective final : public Objective {
 public:
  struct Setup {
    ParamId head = 0;  // [V, D]
    ops::Path path = ops::Path::fast;
    TensorGroup tensor = {};
    ContextGroup context = {};
    PreferenceConfig config = {};
    std::int64_t seq_len = 0;  // train.seq_len
  };

  /// `registry` and `measures` must outlive this.
  PreferenceObjective(ParamRegistry& registry, const Setup& setup,
                      std::unique_ptr<ReferenceScores> reference, Measures& measures);

  [[nodiscard]] LossTerm term() const override { return LossTerm::pair; }

  void prepare(std::span<const Microbatch> micro_batches) override {
    reference_->prepare(micro_batches);
  }

  at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveTape& tape) override;
  void backward(ObjectiveTape& tape) override;
  [[nodiscard]] std::span<const std::string_view> evaluated() const override;
  [[nodiscard]] at::Tensor evaluate(const Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  /// Of the ranks of cp, all of which know the loss of their common rows, one gives it.
  [[nodiscard]] bool gives_loss() const {
    return setup_.context.size() == 1 || setup_.context.group->rank() == 0;
  }

  [[nodiscard]] Head head() const {
    return head_of(registry_, setup_.head, setup_.tensor, setup_.path);
  }

  [[nodiscard]] PreferenceTerms terms_of(const Microbatch& batch,
                                         const SequenceScores& scores) const;

  ParamRegistry& registry_;
  Setup setup_;
  std::unique_ptr<ReferenceScores> reference_;
  Measures& measures_;
  StepMeans means_;
  Measures::Id num_pairs_;
};

}  // namespace trireme
