#pragma once
#include <span>

#include "train/rl/rollout.hpp"

/// Advantages of single tokens from the values of a critic (rl.objective = ppo).
namespace trireme::train {

/// Returns true if the loss trains on the answer: with rl.truncated = mask, one with an end token.
[[nodiscard]] bool is_trained(const RlConfig& config, const Rollout& rollout);

/// Sets `advantages` and `returns` of the trained tokens of each answer from `values` and `reward`.
/// The reward comes with the last trained token, and the value after this token is 0:
///   delta_t = r_t + gamma v_(t+1) - v_t,  A_t = delta_t + gamma lam A_(t+1),  R_t = A_t + v_t.
/// t counts trained tokens only. Source: Schulman et al., "High-dimensional continuous control using
/// generalized advantage estimation", 2016.
void estimate_advantages(const RlConfig& config, std::span<Rollout> rollouts);

/// Sums over the trained tokens of this rank.
struct TokenSum {
  double count = 0;
  double sum = 0;
};

/// Returns the sum of (A - mean)^power, with power 1 or 2.
TokenSum sum_advantages(const RlConfig& config, std::span<const Rollout> rollouts, double mean,
                        int power);

/// Subtracts the mean from all advantages and divides by the root of variance + 1e-8. Sets
/// `advantage` to the mean over the tokens of each answer.
void whiten(std::span<Rollout> rollouts, double mean, double variance);

}  // namespace trireme::train
