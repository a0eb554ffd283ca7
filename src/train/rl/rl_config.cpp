#include "train/rl/rl_config.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "comm/agree.hpp"

namespace trireme::train {
namespace {

std::vector<std::string> names(std::span<const std::string_view> values) {
  return {values.begin(), values.end()};
}

void check_rewards(const RlConfig& config, Problems& problems) {
  const auto error = comm::capture([&] {
    for (const reward::WeightedTerm& term : reward::parse_rewards(config.rewards)) {
      if (term.name == reward::kModelTerm)
        problems.add("rl.rewards", config.rewards,
                     "must not contain model: rl has no reward model");
      else
        static_cast<void>(
            reward::make_term(term.name, {config.reward_command, config.reward_timeout_s}));
    }
  });
  if (error) problems.add(error->what());
}

}  // namespace

void check(const RlConfig& config, Problems& problems) {
  objective::check(config.loss, problems);
  problems.one_of("rl.advantage", config.advantage, names(kAdvantages));
  problems.one_of("rl.divide", config.divide, names(kDivides));
  problems.one_of("rl.old", config.old, names(kOlds));
  problems.one_of("rl.correction", config.correction, names(kCorrections));
  problems.one_of("rl.truncated", config.truncated, std::vector<std::string>{"count", "mask"});
  const bool is_reinforce = config.loss.objective == "reinforce";
  if (config.group < 2 || config.group > 4096)
    problems.add("rl.group", config.group, "must be from 2 to 4096");
  if (is_reinforce && config.advantage != "group")
    problems.add("rl.advantage", config.advantage, "must not be set with rl.objective = reinforce");
  if (config.max_new_tokens < 1)
    problems.add("rl.max_new_tokens", config.max_new_tokens, "must be 1 or more");
  if (!(config.correction_cap > 0) || !std::isfinite(config.correction_cap))
    problems.add("rl.correction_cap", config.correction_cap, "must be greater than 0");
  if (!(config.max_gap >= 0) || !std::isfinite(config.max_gap))
    problems.add("rl.max_gap", config.max_gap, "must be 0 or more");
  if (!(config.reward_timeout_s > 0))
    problems.add("rl.reward_timeout_s", config.reward_timeout_s, "must be greater than 0");
  if (config.keep_rollouts < 0)
    problems.add("rl.keep_rollouts", config.keep_rollouts, "must be 0 or more");
  check_rewards(config, problems);
}

}  // namespace trireme::train
