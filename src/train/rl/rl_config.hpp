#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/problems.hpp"
#include "objective/policy_loss.hpp"
#include "reward/reward.hpp"

namespace trireme::train {

/// Values of rl.advantage: the reward of an answer minus the mean of its group, divided by
///   group       the standard deviation of the group + 1e-4
///   group_mean  1
///   batch       the standard deviation of all rewards of the update + 1e-4
/// Standard deviations divide by the number of values.
inline constexpr std::array<std::string_view, 3> kAdvantages{"group", "group_mean", "batch"};

/// Values of rl.divide: the weight of a token is 1 divided by
///   sequence  answers * tokens of its answer
///   token     tokens of all answers
///   constant  answers * rl.max_new_tokens
inline constexpr std::array<std::string_view, 3> kDivides{"sequence", "token", "constant"};

/// Values of rl.old: the log-probability in the denominator of the ratio.
inline constexpr std::array<std::string_view, 2> kOlds{"rollout", "recompute"};

/// Values of rl.correction: factors for the difference between generation and training.
inline constexpr std::array<std::string_view, 5> kCorrections{
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"};

/// Section [rl].
struct RlConfig {
  objective::PolicyConfig loss;
  std::int64_t group = 6;
  std::int64_t max_new_tokens = 1024;
  double top_p = 1;
  std::int64_t top_k = 0;
  std::int64_t updates = 1;
  std::int64_t mini_batch = 0;
  std::string advantage = "group";
  std::string divide = "sequence";
  std::string old = "rollout";
  std::string correction = "none";
  double correction_cap = 3;
  double max_gap = 0;
  std::string truncated = "count";
  std::string rewards = "length=1,repetition=1";
  std::string reward_model;
  std::string reward_command;
  double reward_timeout_s = 60;
  std::string replay;
  std::int64_t keep_rollouts = 0;

  /// Returns true if the log-probabilities of the current weights are needed before the loss.
  [[nodiscard]] bool recomputes() const {
    return old == "recompute" || correction != "none" || max_gap > 0;
  }

  /// Returns the number of prompts of an optimizer step, over all ranks.
  [[nodiscard]] std::int64_t prompts_of_step(std::int64_t global_batch) const {
    return mini_batch > 0 ? mini_batch : global_batch;
  }

  /// Returns true if a frozen reference model is needed.
  [[nodiscard]] bool has_reference() const { return loss.kl != "off" && loss.beta > 0; }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    objective::PolicyConfig::fields(self.loss, visit);
    visit("group", self.group, "number of answers for each prompt");
    visit("max_new_tokens", self.max_new_tokens, "maximum number of tokens of an answer");
    visit("top_p", self.top_p,
          "sample from the most likely tokens with this total probability; below 1, the ratio is "
          "biased");
    visit("top_k", self.top_k,
          "sample from this number of most likely tokens; 0: from all; otherwise, the ratio is "
          "biased");
    visit("updates", self.updates, "number of passes over the answers of a rollout");
    visit("mini_batch", self.mini_batch,
          "prompts of an optimizer step; must divide train.global_batch, the prompts of a rollout; "
          "0: train.global_batch");
    visit("advantage", self.advantage,
          "divisor of reward - group mean: group (standard deviation of the group), group_mean "
          "(none) or batch (standard deviation of the update)");
    visit("divide", self.divide,
          "divisor of the sum of token losses: sequence (tokens of each answer, then answers), "
          "token (all tokens) or constant (answers * rl.max_new_tokens)");
    visit("old", self.old,
          "log-probabilities in the denominator of the ratio: rollout (those of the generation) "
          "or recompute (those of the training step)");
    visit("correction", self.correction,
          "correction of exp(recomputed - generated log-probability), by token or sequence: "
          "none, token_truncate, token_mask, sequence_truncate or sequence_mask");
    visit("correction_cap", self.correction_cap,
          "largest correction: truncate limits larger values to the cap, mask sets them to 0");
    visit("max_gap", self.max_gap,
          "largest allowed difference between a generated and a recomputed log-probability; a "
          "larger one ends the run with exit code 6; 0: no limit");
    visit("truncated", self.truncated,
          "answers without an end token: count (trained) or mask (not trained)");
    visit("rewards", self.rewards, "reward terms with their weights: NAME=WEIGHT,...");
    visit("reward_model", self.reward_model,
          "run or checkpoint of trireme reward for the reward term model");
    visit("reward_command", self.reward_command, "program of the reward term command");
    visit("reward_timeout_s", self.reward_timeout_s,
          "maximum time for an answer of rl.reward_command");
    visit("replay", self.replay,
          "train on these answers instead of generating: a .jsonl file with consecutive updates, "
          "or a directory with step-NNNNNNNNN.jsonl; empty: generate");
    visit("keep_rollouts", self.keep_rollouts,
          "number of newest files in RUN/rollouts to keep; 0: all");
  }
};

void check(const RlConfig& config, Problems& problems);

}  // namespace trireme::train
