#pragma once
#include <span>
#include <vector>

#include "objective/head.hpp"
#include "parallel/microbatch.hpp"
#include "train/rl/rollout.hpp"
#include "train/rl/token_advantages.hpp"
#include "train/task/sample_source.hpp"

namespace trireme::train {

/// Computes values of generated tokens with the current weights, without dropout. The batches have
/// the rows of a micro-batch of the update.
class AnswerLogprobs {
 public:
  /// `config` and `context` must outlive this object. `num_ids`: ids of the tokenizer; later rows of
  /// the embedding are padding.
  AnswerLogprobs(const RlConfig& config, const SourceContext& context, std::int64_t num_ids)
      : config_(config), context_(context), num_ids_(num_ids) {}

  /// Sets the log-probabilities of the current weights and of the reference, and the values of the
  /// critic, if they are needed. `model` is the whole model, and `step` the step of the next update.
  void add(model::Transformer& model, std::span<Rollout> rollouts, std::int64_t step) const;

  /// Returns the sum of 0.5 (logp - old_logp)^2 over the trained tokens.
  [[nodiscard]] TokenSum squared_changes(model::Transformer& model, std::span<Rollout> rollouts,
                                         std::int64_t step) const;

 private:
  template <class Use>
  void for_batches(std::span<Rollout> rollouts, std::int64_t step, const Use& use) const;
  [[nodiscard]] at::Tensor own_logprobs(model::Transformer& model,
                                        const parallel::Microbatch& batch) const;
  [[nodiscard]] at::Tensor reference_logprobs(model::Transformer& model,
                                              parallel::Microbatch batch) const;

  const RlConfig& config_;
  const SourceContext& context_;
  std::int64_t num_ids_;
};

}  // namespace trireme::train
