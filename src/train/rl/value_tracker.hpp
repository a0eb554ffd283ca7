#pragma once
#include <map>
#include <optional>
#include <string>

namespace trireme::train {

/// Estimates the mean reward of the answers (rl.objective = spo), as alpha / (alpha + beta) of
/// rewards that are scaled from [-3, 3] to [0, 1]. Each rollout decays both counts by rho and adds
/// its mean reward. The more the mean log-probability of the answers has changed since the rollout
/// before, the smaller rho is. Source: MiniMind, trainer/train_spo.py of commit 83e52f6.
class ValueTracker {
 public:
  /// Returns the estimate, in the scale of the rewards.
  [[nodiscard]] double baseline() const;

  /// Adds a rollout: mean reward of its answers, mean log-probability of their trained tokens, over
  /// all ranks. Returns rho.
  double add(double mean_reward, double mean_logprob);

  /// Writes the state to RunValues::samples of a checkpoint, and reads it. read() returns a new
  /// tracker if the checkpoint has none. It throws Error(data) for a value that is not a number.
  void put(std::map<std::string, std::string>& samples) const;
  static ValueTracker read(const std::map<std::string, std::string>& samples);

 private:
  double alpha_ = 1;
  double beta_ = 1;
  std::optional<double> last_logprob_;
};

}  // namespace trireme::train
