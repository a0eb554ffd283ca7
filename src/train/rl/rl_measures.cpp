#include "train/rl/rl_measures.hpp"

#include "comm/scalars.hpp"

namespace trireme::train {

RlMeasures::RlMeasures(const RlConfig& config, Measures& measures)
    : measures_(measures),
      group_(config.group),
      generates_(config.replay.empty()),
      reward_(measures.declare({"reward", Combine::weighted_mean})),
      reward_std_(measures.declare({"reward_std", Combine::weighted_mean})),
      zero_std_groups_(measures.declare({"zero_std_groups", Combine::sum, /*whole=*/true})),
      completion_tokens_(measures.declare({"completion_tokens_mean", Combine::weighted_mean})),
      truncated_(measures.declare({"truncated_fraction", Combine::weighted_mean})),
      update_s_(measures.declare({"update_s", Combine::max})) {
  if (config.has_critic()) value_loss_ = measures.declare({"value_loss", Combine::weighted_mean});
  if (!generates_) return;
  rollout_s_ = measures.declare({"rollout_s", Combine::max});
  tokens_per_s_ = measures.declare({"rollout_tokens_per_s", Combine::max});
  for (const reward::WeightedTerm& term : reward::parse_rewards(config.rewards))
    terms_[term.name] = measures.declare({cat("reward_", term.name), Combine::weighted_mean});
}

void RlMeasures::record(comm::Communicator& world, std::span<const Rollout> rollouts,
                        const AdvantageTotals& advantages, double rollout_s) {
  const auto answers = static_cast<double>(rollouts.size());
  double reward = 0;
  double tokens = 0;
  double truncated = 0;
  std::map<std::string, double> terms;
  for (const Rollout& one : rollouts) {
    reward += one.reward;
    tokens += static_cast<double>(one.num_trained());
    truncated += one.truncated ? 1 : 0;
    for (const auto& [name, value] : one.rewards) terms[name] += value;
  }
  measures_.record(reward_, reward, answers);
  measures_.record(reward_std_, advantages.std_sum, answers / static_cast<double>(group_));
  measures_.record(zero_std_groups_, static_cast<double>(advantages.zero_std_groups));
  measures_.record(completion_tokens_, tokens, answers);
  measures_.record(truncated_, truncated, answers);
  if (!generates_) return;
  for (const auto& [name, id] : terms_) measures_.record(id, terms[name], answers);
  const double all = comm::all_reduce_value(world, tokens, comm::ReduceOp::sum, "rollout tokens");
  const double slowest = comm::all_reduce_value(world, rollout_s, comm::ReduceOp::max, "rollout_s");
  measures_.record(rollout_s_, slowest);
  measures_.record(tokens_per_s_, slowest > 0 ? all / slowest : 0);
}

}  // namespace trireme::train
