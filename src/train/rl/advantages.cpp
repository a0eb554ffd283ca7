#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {
namespace {

constexpr double kStdFloor = 1e-4;  // MiniMind V3 and TRL
constexpr double kSpoLimit = 5;     // largest advantage of spo, as in MiniMind

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double std_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

std::int64_t Rollout::num_trained() const {
  return std::count(mask.begin(), mask.end(), true);
}

void penalize_rewards(const RlConfig& config, std::span<Rollout> rollouts) {
  for (Rollout& rollout : rollouts) {
    double sum = 0;
    for (std::size_t i = 0; i < rollout.ids.size(); ++i) {
      if (!rollout.mask[i]) continue;
      const double above = rollout.ref_logprobs[i] - rollout.old_logprobs[i];
      sum += std::exp(above) - above - 1;
    }
    rollout.raw_reward = rollout.reward;
    rollout.reward -= config.loss.beta * sum;
  }
}

AdvantageTotals set_advantages(const RlConfig& config, std::span<const double> all_rewards,
                               std::optional<double> baseline, std::span<Rollout> rollouts) {
  const auto group = static_cast<std::size_t>(config.group);
  const bool leaves_out = config.loss.objective == "reinforce";
  const double batch_std = std_of(all_rewards);
  AdvantageTotals totals;
  for (std::size_t first = 0; first < rollouts.size(); first += group) {
    const std::span<Rollout> answers = rollouts.subspan(first, group);
    std::vector<double> rewards;
    for (const Rollout& answer : answers) rewards.push_back(answer.reward);
    const auto [least, most] = std::minmax_element(rewards.begin(), rewards.end());
    const bool is_equal = *least == *most;
    const double mean = mean_of(rewards);
    const double spread = is_equal ? 0 : std_of(rewards);
    totals.zero_std_groups += is_equal && group > 1 ? 1 : 0;
    totals.std_sum += spread;
    if (!config.loss.compares_group()) {
      for (Rollout& answer : answers)
        if (baseline)
          answer.advantage = std::clamp(answer.reward - *baseline, -kSpoLimit, kSpoLimit);
      continue;
    }
    const double size = static_cast<double>(group);
    for (Rollout& answer : answers) {
      // A rounded mean of equal rewards must not become an advantage.
      double advantage = is_equal ? 0 : answer.reward - mean;
      if (leaves_out) {
        advantage *= size / (size - 1);  // reward - mean of the others
      } else if (config.advantage == "group") {
        advantage /= spread + kStdFloor;
      } else if (config.advantage == "batch") {
        advantage /= batch_std + kStdFloor;
      }
      answer.advantage = advantage;
    }
  }
  return totals;
}

void set_old_logprobs(const RlConfig& config, std::span<Rollout> rollouts) {
  for (Rollout& rollout : rollouts) {
    for (std::size_t i = 0; config.max_gap > 0 && i < rollout.ids.size(); ++i) {
      const double gap = std::abs(rollout.current_logprobs[i] - rollout.rollout_logprobs[i]);
      if (!rollout.mask[i] || gap <= config.max_gap) continue;
      fail(ErrorKind::numeric,
           "The log-probability of token {} of answer {} to prompt {} is {} in the generation, "
           "but {} in the training step. The difference {} is larger than rl.max_gap = {}. Use a "
           "higher train.precision, or raise rl.max_gap.",
           i, rollout.sample, rollout.prompt_index, rollout.rollout_logprobs[i],
           rollout.current_logprobs[i], gap, config.max_gap);
    }
    rollout.old_logprobs =
        config.old == "recompute" ? rollout.current_logprobs : rollout.rollout_logprobs;
  }
}

}  // namespace trireme::train
