#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/transformer.hpp"
#include "reward/reward.hpp"
#include "train/rl/answer_tokens.hpp"
#include "train/rl/prompts.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {

struct GenerationSetup {
  model::Transformer& model;  // the whole model with its current weights
  const AnswerTokens& tokens;
  const RlConfig& config;
  std::int64_t seed = 0;
  std::int64_t weights_version = 0;
};

/// Generates rl.group answers for each prompt, in the order of the prompts. Each answer depends
/// only on the weights, the seed, and the indices of prompt and answer. A new engine reads the
/// current weights, so no cached key or value is stale. Throws the error of a failed request.
std::vector<Rollout> generate_answers(const GenerationSetup& setup,
                                      std::span<const RlPrompt> prompts);

/// The terms of rl.rewards.
class RewardTerms {
 public:
  explicit RewardTerms(const RlConfig& config);

  /// Sets rewards and reward of all rollouts. Throws like RewardTerm::score.
  void score(std::span<Rollout> rollouts);

 private:
  std::vector<std::pair<reward::WeightedTerm, std::unique_ptr<reward::RewardTerm>>> terms_;
};

}  // namespace trireme::train
