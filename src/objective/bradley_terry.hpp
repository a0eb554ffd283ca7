#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/fields.hpp"
#include "core/measures.hpp"
#include "core/problems.hpp"
#include "objective/objective.hpp"
#include "objective/step_means.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// Reward models: a scalar head on the hidden states of a transformer.
namespace trireme::objective {

/// Name of the head's parameter [1, D] in registries and, after "param/", in checkpoints.
inline constexpr const char* kRewardHead = "reward_head.weight";

/// Declares the head in a unit of its own. Its initial values are normal with the standard
/// deviation 1 / sqrt(D + 1). Source: Stiennon et al., "Learning to summarize from human feedback",
/// 2020, appendix B.1.
parallel::ParamId declare_reward_head(parallel::ParamRegistry& registry, std::int64_t hidden_size);

/// Computes the rewards of rows [N, D] with the head `weight` [1, D]. Returns fp32, or fp64 for
/// fp64, [N] on the device of the rows.
at::Tensor rewards_of(const at::Tensor& rows, const at::Tensor& weight);

struct RewardConfig {
  double center = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("center", self.center,
          "weight of the squared sum of both rewards of a pair in the loss, which keeps rewards "
          "near 0");
  }
};

void check(const RewardConfig& config, Problems& problems);

/// Trains a reward model on preference pairs with the loss of Bradley and Terry:
/// -log sigmoid(r_chosen - r_rejected) + center (r_chosen + r_rejected)^2, summed over pairs.
///
/// The reward of a sequence is read at its last target, the end token of its answer. The output
/// matrix of the model gets no gradient. A sequence may be spread over ranks of cp; rank 0 of them
/// returns the loss of all.
///
/// Measures, as means over the pairs of a step: accuracy (share with r_chosen > r_rejected),
/// margin (their difference), reward_chosen, reward_rejected, and num_pairs. Validation reports
/// accuracy and margin. Source: Eisenstein et al., "Helping or Herding?", 2023 (the term with
/// `center`).
class BradleyTerry final : public Objective {
 public:
  struct Setup {
    bool has_head = true;           // false: the rank has no last stage and declares nothing
    parallel::ParamId lm_head = 0;  // the model's output matrix
    std::int64_t hidden_size = 0;
    parallel::TensorGroup tensor = {};
    parallel::ContextGroup context = {};
    RewardConfig config = {};
  };

  /// Declares the head. `registry` and `measures` must outlive this object.
  BradleyTerry(parallel::ParamRegistry& registry, const Setup& setup, Measures& measures);

  [[nodiscard]] LossTerm term() const override { return LossTerm::pair; }

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;
  [[nodiscard]] std::span<const std::string_view> evaluated() const override;
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  /// The end tokens of sequences that this rank holds, and the rewards of all sequences.
  struct Scores {
    std::vector<std::int64_t> tokens;     // [n], indices into T
    std::vector<std::int64_t> sequences;  // [n]
    at::Tensor rows;                      // [n, D]
    at::Tensor rewards;                   // [2 * num_pairs] fp64 in host memory
  };

  [[nodiscard]] Scores scores_of(const parallel::Microbatch& batch, const at::Tensor& hidden) const;

  [[nodiscard]] bool gives_loss() const {
    return setup_.context.size() == 1 || setup_.context.group->rank() == 0;
  }

  parallel::ParamRegistry& registry_;
  Setup setup_;
  parallel::ParamId head_ = 0;
  Measures& measures_;
  StepMeans means_;
  Measures::Id num_pairs_;
};

/// Returns the rewards (chosen, rejected) of each pair [num_pairs, 2], fp64 in host memory. `head`
/// is the weight [1, D]. The batch must not be sharded.
at::Tensor pair_rewards(const parallel::Microbatch& batch, const at::Tensor& hidden,
                        const at::Tensor& head);

}  // namespace trireme::objective
