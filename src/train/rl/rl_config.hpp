#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/problems.hpp"
#include "generate/engine_config.hpp"
#include "objective/policy_loss.hpp"
#include "reward/reward.hpp"

namespace trireme::train {

/// Values of rl.advantage: the reward of an answer minus the mean of its group, divided by
///   group       the standard deviation of the group + 1e-4
///   group_mean  1
///   batch       the standard deviation of all rewards of the update + 1e-4
/// Only grpo and cispo read this key. Standard deviations divide by the number of values.
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

/// Default of rl.rewards without rl.reward_model.
inline constexpr const char* kRewardsWithoutModel = "length=1,repetition=1";

/// Section [ppo]: the critic of rl.objective = ppo.
struct PpoConfig {
  std::string critic_init;
  double critic_lr = 5e-7;  // MiniMind V3's trainer/train_ppo.py, for this and the next keys
  double gamma = 1;
  double lam = 0.95;
  double value_clip = 0.2;
  double value_weight = 0.5;
  double early_stop_kl = 0.25;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("critic_init", self.critic_init,
          "model that the critic starts from, also a reward model; empty: the model of --init");
    visit("critic_lr", self.critic_lr,
          "peak learning rate of the critic; its schedule is that of optim.lr");
    visit("gamma", self.gamma, "discount of the value of the next token, in [0, 1]");
    visit("lam", self.lam, "decay of later advantages (GAE), in [0, 1]");
    visit("value_clip", self.value_clip,
          "the value loss limits the change of a value since the generation to this number");
    visit("value_weight", self.value_weight, "factor of the gradient of the value loss");
    visit("early_stop_kl", self.early_stop_kl,
          "a mini-batch with a larger mean of 0.5 log(ratio)^2 ends the updates of its rollout; 0: "
          "no limit");
  }
};

/// Section [rl].
struct RlConfig {
  objective::PolicyConfig loss;
  PpoConfig ppo;  // its own section
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
  std::string rewards = "length=1,repetition=1,model=1";
  std::string reward_model;
  std::string reward_command;
  double reward_timeout_s = 60;
  double pass_reward = 0;
  std::string tools;
  std::string tool_command;
  std::int64_t max_turns = 3;
  std::int64_t max_total_tokens = 2500;
  std::string replay;
  std::int64_t keep_rollouts = 0;
  std::string cuda_graph = "auto";

  /// Returns true if the log-probabilities of the current weights are needed before the loss. spo
  /// measures their change; those of answers from a file are not those of the current weights.
  [[nodiscard]] bool recomputes() const {
    return old == "recompute" || correction != "none" || max_gap > 0 ||
           (has_tracker() && !replay.empty());
  }

  /// Returns true if both the ratio of the objective and rl.correction have the difference between
  /// generation and training.
  [[nodiscard]] bool corrects_twice() const {
    const bool has_ratio = loss.objective != "reinforce" && loss.objective != "spo";
    return has_ratio && correction != "none" && old == "rollout";
  }

  [[nodiscard]] bool has_tracker() const { return loss.objective == "spo"; }

  [[nodiscard]] bool has_critic() const { return loss.objective == "ppo"; }

  /// Returns the keys that remove tokens from the distribution of the generation, with their values;
  /// "" if none does.
  [[nodiscard]] std::string cuts() const;

  /// Returns the number of prompts of an optimizer step, over all ranks.
  [[nodiscard]] std::int64_t prompts_of_step(std::int64_t global_batch) const {
    return mini_batch > 0 ? mini_batch : global_batch;
  }

  /// Returns true if a frozen reference model is needed.
  [[nodiscard]] bool has_reference() const { return loss.kl != "off" && loss.beta > 0; }

  /// Returns true if the answers may call tools.
  [[nodiscard]] bool uses_tools() const {
    return replay.empty() && !(tools.empty() && tool_command.empty());
  }

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
    visit("rewards", self.rewards,
          "reward terms with their weights: NAME=WEIGHT,...; model needs rl.reward_model");
    visit("reward_model", self.reward_model,
          "run or checkpoint of trireme reward for the reward term model");
    visit("reward_command", self.reward_command, "program of the reward term command");
    visit("reward_timeout_s", self.reward_timeout_s,
          "maximum time for an answer of rl.reward_command or rl.tool_command");
    visit("tools", self.tools,
          "JSON file with the tools that answers may call; empty: no tools, or rl.tool_command");
    visit("tool_command", self.tool_command,
          "program that answers the calls of tools, one JSON line for each call");
    visit(
        "max_turns", self.max_turns,
        "maximum number of answers of a conversation with tools; all but the last may call tools");
    visit(
        "max_total_tokens", self.max_total_tokens,
        "maximum number of tokens of a conversation with tools, with its prompt; train.seq_len is "
        "a limit too");
    visit("pass_reward", self.pass_reward,
          "validation: an answer with a larger reward passes (valid_pass_at_k)");
    visit("replay", self.replay,
          "train on these answers instead of generating: a .jsonl file with consecutive updates, "
          "or a directory with step-NNNNNNNNN.jsonl; empty: generate");
    visit("keep_rollouts", self.keep_rollouts,
          "number of newest files in RUN/rollouts to keep; 0: all");
    visit("cuda_graph", self.cuda_graph, generate::kCudaGraphHelp);
  }
};

void check(const RlConfig& config, Problems& problems);

}  // namespace trireme::train
