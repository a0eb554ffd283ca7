#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/transformer.hpp"
#include "reward/reward.hpp"
#include "train/eval/reward_model.hpp"
#include "train/rl/agent.hpp"
#include "train/rl/answer_tokens.hpp"
#include "train/rl/prompts.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {

struct GenerationSetup {
  model::Transformer& model;  // the whole model with its current weights
  const AnswerTokens& tokens;
  const RlConfig& config;
  Agent* agent = nullptr;  // null: no tools
  std::int64_t seed = 0;
  std::int64_t weights_version = 0;
  const std::function<bool()>& is_stopped;  // polled after each token; true ends the generation
};

/// Some of the answers to a list of prompts. Prompt i has the answers i * rl.group to
/// (i + 1) * rl.group - 1.
struct AnswerRange {
  std::size_t first = 0;
  std::size_t count = static_cast<std::size_t>(-1);  // at most all further answers
};

/// Generates the answers of a range, in the order of the prompts. Each answer depends only on  the
/// weights, the seed, and the indices of prompt and answer. A new engine reads the current weights,
/// so no cached key or value is stale. With an agent, an answer that calls tools is followed by their
/// results and another answer. Returns nullopt if `is_stopped` ended the generation. Throws the error
/// of a failed request, and errors of Agent.
std::optional<std::vector<Rollout>> generate_answers(const GenerationSetup& setup,
                                                     std::span<const RlPrompt> prompts,
                                                     AnswerRange range = {});

struct RewardSetup {
  const RlConfig& config;
  const AnswerTokens& tokens;
  std::int64_t seq_len = 0;  // maximum number of tokens of a prompt and its answer
  at::Device device = at::kCPU;
  bool is_fp64 = false;  // compute the reward model in fp64, otherwise in fp32
};

/// The terms of rl.rewards.
class RewardTerms {
 public:
  /// Loads the reward model if a term needs it. Throws Error(usage) if the reward model has another
  /// tokenizer or a smaller max_seq_len.
  explicit RewardTerms(const RewardSetup& setup);

  /// Sets Rollout::rewards and Rollout::reward of all rollouts. Throws like RewardTerm::score.
  void score(std::span<Rollout> rollouts);

 private:
  /// Returns the rewards of the reward model for each prompt with its answer.
  [[nodiscard]] std::vector<double> score_by_model(std::span<const Rollout> rollouts) const;

  std::unique_ptr<RewardModel> model_;  // null: no term needs it
  // The pointer is null for the term of the reward model.
  std::vector<std::pair<reward::WeightedTerm, std::unique_ptr<reward::RewardTerm>>> terms_;
};

}  // namespace trireme::train
