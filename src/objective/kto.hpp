#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "core/measures.hpp"
#include "core/problems.hpp"
#include "objective/objective.hpp"
#include "objective/sequence_scores.hpp"
#include "objective/step_means.hpp"

namespace trireme::objective {

/// Values of kto.loss, with r = log-probability of the answer minus that of the reference, and the
/// KL estimate z:
///   kto                1 - sigmoid(beta (r - z)) if desirable, else 1 - sigmoid(beta (z - r))
///   apo_zero_unpaired  1 - sigmoid(beta r) if desirable, else sigmoid(beta r)
inline constexpr std::array<std::string_view, 2> kAnswerLosses{"kto", "apo_zero_unpaired"};

/// Keys of section [kto] that define the loss.
struct KtoConfig {
  double beta = 0.1;
  std::string loss = "kto";
  double desirable_weight = 1;
  double undesirable_weight = 1;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("beta", self.beta, "strength of the penalty for deviating from the reference model");
    visit("loss", self.loss,
          "kto, or apo_zero_unpaired (the same with 0 in the place of the KL estimate)");
    visit("desirable_weight", self.desirable_weight, "factor of the loss of desirable answers");
    visit("undesirable_weight", self.undesirable_weight,
          "factor of the loss of undesirable answers");
  }
};

void check(const KtoConfig& config, Problems& problems);

/// The loss terms of P labeled answers, on the host, fp64.
struct KtoTerms {
  at::Tensor is_desirable;  // [P] bool
  at::Tensor losses;        // [P]
  at::Tensor rewards;       // [P]: beta * (log-probability - that of the reference)
  at::Tensor row_weights;   // [2 P]: d loss / d(-log p) for each target of a sequence
};

/// Computes losses and gradients. Answer p is desirable if sequence 2 p has targets, and undesirable
/// if sequence 2 p + 1 has targets; an answer without targets has no loss. `reference` is like
/// scores.sums, and `kl` is the KL estimate. Sources: Ethayarajh et al., "KTO: model alignment as
/// prospect theoretic optimization", 2024, eq. 8; D'Oosterlinck et al., "Anchored preference
/// optimization", 2024, section 3; the losses of TRL's KTOTrainer.
KtoTerms kto_terms(const KtoConfig& config, const SequenceScores& scores,
                   const at::Tensor& reference, double kl);

/// Learns from single answers that are labeled as desirable or undesirable (KTO).
///
/// The KL estimate of an update is max(0, mean of r), where the mean is over all samples of the
/// update on all ranks. Here r belongs to the prompt of a sample with the answer of another prompt
/// (Microbatch::mismatched). r is computed with the weights before the update, without dropout and
/// without gradients. The estimate of a validation is the same over all its samples.
///
/// Measures: accuracy (share of answers with beta (r - kl) > 0 if desirable, else < 0), kl, and the
/// means reward_chosen and logp_chosen over the desirable answers of a step, reward_rejected and
/// logp_rejected over the others, and margin = reward_chosen - reward_rejected. A mean without
/// answers is 0. num_answers counts all answers. Validation reports all but the log-probabilities.
class KtoObjective final : public Objective {
 public:
  struct Setup {
    parallel::ParamId head = 0;  // [V, D]
    ops::Path path = ops::Path::fast;
    parallel::TensorGroup tensor = {};
    parallel::ContextGroup context = {};
    KtoConfig config = {};
    // The ranks of these groups together train on all samples of an update, and hold all stages.
    std::vector<comm::Communicator*> update_groups = {};
    bool counts_answers = true;  // false: another stage counts the answers of this rank
  };

  /// `own` has the scores of the trained model, `reference` those of the frozen one. `registry` and
  /// `measures` must outlive this.
  KtoObjective(parallel::ParamRegistry& registry, Setup setup, std::unique_ptr<ReferenceScores> own,
               std::unique_ptr<ReferenceScores> reference, Measures& measures);

  [[nodiscard]] LossTerm term() const override { return LossTerm::answer; }

  void prepare(std::span<const parallel::Microbatch> micro_batches) override {
    reference_->prepare(micro_batches);
  }

  [[nodiscard]] bool surveys() const override { return true; }

  void survey(std::span<const parallel::Microbatch> micro_batches, bool last) override;
  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;
  [[nodiscard]] std::span<const std::string_view> evaluated() const override;
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  /// Sums over the samples of an update or validation.
  struct Survey {
    double kl = 0;         // r with answers of other prompts
    double desirable = 0;  // number of desirable answers
    double undesirable = 0;
  };

  [[nodiscard]] bool gives_loss() const {
    return setup_.context.size() == 1 || setup_.context.group->rank() == 0;
  }

  [[nodiscard]] Head head() const {
    return head_of(registry_, setup_.head, setup_.tensor, setup_.path);
  }

  /// Returns the KL estimate of the last survey.
  [[nodiscard]] double kl() const;
  void add_mismatched(std::span<const parallel::Microbatch> micro_batches);
  [[nodiscard]] KtoTerms terms_of(const parallel::Microbatch& batch,
                                  const SequenceScores& scores) const;
  [[nodiscard]] std::vector<double> sums_of(const KtoTerms& terms,
                                            const SequenceScores& scores) const;

  parallel::ParamRegistry& registry_;
  Setup setup_;
  std::unique_ptr<ReferenceScores> own_;
  std::unique_ptr<ReferenceScores> reference_;
  Measures& measures_;
  StepMeans means_;
  Measures::Id num_answers_;
  Survey adding_;  // the parts so far, only of this rank
  Survey survey_;  // the sums over all ranks
};

}  // namespace trireme::objective
