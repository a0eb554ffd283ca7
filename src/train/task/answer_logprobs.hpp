#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "objective/head.hpp"
#include "parallel/microbatch.hpp"
#include "train/rl/rollout.hpp"
#include "train/rl/token_advantages.hpp"
#include "train/task/rollout_ranks.hpp"
#include "train/task/sample_source.hpp"

namespace trireme::train {

/// Computes values of generated tokens with the current weights, without dropout. The batches have
/// the rows of a micro-batch of the update. The models compute on their layout, as in the update, so
/// all functions are collective over the world.
class AnswerLogprobs {
 public:
  /// `config`, `context` and `ranks` must outlive this object. `num_ids`: ids of the tokenizer; later
  /// rows of the embedding are padding. Collective.
  AnswerLogprobs(const RlConfig& config, const SourceContext& context, const RolloutRanks& ranks,
                 std::int64_t num_ids);

  /// Sets the log-probabilities of the current weights and of the reference, and the values of the
  /// critic, if they are needed. `step` is the step of the next update.
  void add(std::span<Rollout> rollouts, std::int64_t step);

  /// Returns the sum of 0.5 (logp - old_logp)^2 over the trained tokens.
  [[nodiscard]] TokenSum squared_changes(std::span<Rollout> rollouts, std::int64_t step);

 private:
  /// The answers as micro-batches. Column 0 of Microbatch::policy has the number of each target.
  struct Batches {
    std::vector<parallel::Microbatch> micro_batches;
    std::int64_t num_targets = 0;
  };

  /// Receives the number of a micro-batch and the values [n] fp64 of its targets on this rank.
  using Use = std::function<void(std::size_t, const at::Tensor&)>;
  [[nodiscard]] Batches make_batches(std::span<const Rollout> rollouts, std::int64_t step) const;
  [[nodiscard]] at::Tensor gather(const Batches& batches,
                                  const std::function<void(const Use&)>& compute) const;
  [[nodiscard]] at::Tensor own_logprobs(const Batches& batches);
  [[nodiscard]] at::Tensor reference_logprobs(Batches batches);
  [[nodiscard]] at::Tensor critic_values(const Batches& batches);

  const RlConfig& config_;
  const SourceContext& context_;
  const RolloutRanks& ranks_;
  std::int64_t num_ids_;
  FrozenStages own_stages_;
  std::optional<FrozenStages> reference_stages_;
};

}  // namespace trireme::train
