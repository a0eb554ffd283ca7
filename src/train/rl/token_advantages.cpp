#include "train/rl/token_advantages.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace trireme::train {
namespace {

constexpr double kLeastVariance = 1e-8;  // MiniMind V3 and TRL

}  // namespace

bool is_trained(const RlConfig& config, const Rollout& rollout) {
  return !rollout.truncated || config.truncated != "mask";
}

void estimate_advantages(const RlConfig& config, std::span<Rollout> rollouts) {
  const double gamma = config.ppo.gamma;
  for (Rollout& one : rollouts) {
    TRIREME_ASSERT(one.values.size() == one.ids.size());
    one.advantages.assign(one.ids.size(), 0);
    one.returns.assign(one.ids.size(), 0);
    double reward = one.reward;
    double next_value = 0;
    double next_advantage = 0;
    for (std::size_t i = one.ids.size(); i-- > 0;) {
      if (!one.mask[i]) continue;
      const double delta = reward + gamma * next_value - one.values[i];
      next_advantage = delta + gamma * config.ppo.lam * next_advantage;
      next_value = one.values[i];
      reward = 0;
      one.advantages[i] = next_advantage;
      one.returns[i] = next_advantage + next_value;
    }
  }
}

TokenSum sum_advantages(const RlConfig& config, std::span<const Rollout> rollouts, double mean,
                        int power) {
  TokenSum total;
  for (const Rollout& one : rollouts) {
    if (!is_trained(config, one)) continue;
    for (std::size_t i = 0; i < one.ids.size(); ++i) {
      if (!one.mask[i]) continue;
      const double away = one.advantages[i] - mean;
      total.count += 1;
      total.sum += power == 2 ? away * away : away;
    }
  }
  return total;
}

void whiten(std::span<Rollout> rollouts, double mean, double variance) {
  const double factor = 1 / std::sqrt(variance + kLeastVariance);
  for (Rollout& one : rollouts) {
    double sum = 0;
    for (std::size_t i = 0; i < one.ids.size(); ++i) {
      if (!one.mask[i]) continue;
      one.advantages[i] = (one.advantages[i] - mean) * factor;
      sum += one.advantages[i];
    }
    one.advantage = sum / static_cast<double>(std::max<std::int64_t>(one.num_trained(), 1));
  }
}

}  // namespace trireme::train
