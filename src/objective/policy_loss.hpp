#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <string_view>

#include "core/problems.hpp"

namespace trireme::objective {

/// Policy-gradient losses of a token, with ratio r = exp(logp - old_logp) and advantage A.
///   grpo       -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A)
///   cispo      -min(r, epsilon_high) A logp, without a gradient of min(r, epsilon_high)
///   reinforce  -A logp
///   spo        -A logp; its advantages have the baseline of a tracker
///   ppo        the loss of grpo; its advantages are those of single tokens
enum class PolicyLoss { grpo, cispo, reinforce, spo, ppo };

// The order is that of PolicyLoss.
inline constexpr std::array<std::string_view, 5> kPolicyLosses{"grpo", "cispo", "reinforce", "spo",
                                                               "ppo"};

/// Keys of section [rl] that define the loss.
struct PolicyConfig {
  std::string objective = "grpo";
  double temperature = 0.8;
  double beta = 0.1;
  double epsilon = 0.2;
  double epsilon_high = 0;  // 0: the default of the objective
  std::string kl = "loss";

  /// Returns true if the loss has the term beta * k3.
  [[nodiscard]] bool has_kl_loss() const { return kl == "loss" && beta > 0; }

  /// Returns true if each prompt is a group of answers that are compared with each other.
  [[nodiscard]] bool compares_group() const { return objective != "spo" && objective != "ppo"; }

  /// Returns the upper limit: of ratio - 1 for grpo and ppo, of the ratio for cispo.
  [[nodiscard]] double upper() const {
    if (epsilon_high > 0) return epsilon_high;
    return objective == "cispo" ? 5.0 : epsilon;
  }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(
        "objective", self.objective,
        "grpo (clipped ratio), cispo (clipped weight of the log-probability), reinforce (baseline: "
        "mean reward of the other answers), spo (baseline: tracker of all rewards) or ppo (critic)");
    visit("temperature", self.temperature,
          "sampling temperature; all log-probabilities use the same temperature");
    visit("beta", self.beta, "factor of the KL penalty against the reference model");
    visit("epsilon", self.epsilon, "grpo, ppo: the ratio is clipped below at 1 - epsilon");
    visit("epsilon_high", self.epsilon_high,
          "grpo, ppo: the ratio is clipped above at 1 + epsilon_high; cispo: the ratio is clipped "
          "above at epsilon_high; 0: epsilon (grpo, ppo) or 5 (cispo)");
    visit(
        "kl", self.kl,
        "place of the KL penalty (k3): loss (of each token), reward (sum over the answer) or off");
  }
};

void check(const PolicyConfig& config, Problems& problems);

/// Values of N targets, [N] fp64 in host memory. `policy` [N, 8] has the columns of
/// Microbatch::policy.
struct PolicyTerms {
  at::Tensor losses;   // weighted losses
  at::Tensor slopes;   // d losses / d(-logp)
  at::Tensor ratios;   // exp(logp - old_logp)
  at::Tensor clipped;  // bool: the limit has removed the gradient (grpo) or lowered it (cispo)
  at::Tensor kl;       // k3: exp(d) - d - 1 with d = reference_logp - logp
  at::Tensor gaps;     // |logp - rollout_logp|
};

/// Computes the loss of each target from its log-probability. Sources: Shao et al., "DeepSeekMath",
/// 2024 (GRPO); MiniMax, "MiniMax-M1", 2025 (CISPO); Ahmadian et al., "Back to basics", 2024
/// (REINFORCE with leave-one-out); Schulman et al., "Proximal policy optimization algorithms", 2017
/// (PPO); Schulman, "Approximating KL divergence", 2020 (k3).
PolicyTerms policy_terms(const PolicyConfig& config, const at::Tensor& log_probs,
                         const at::Tensor& policy);

}  // namespace trireme::objective
