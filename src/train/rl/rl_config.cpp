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
  bool has_model = false;
  const auto error = comm::capture([&] {
    for (const reward::WeightedTerm& term : reward::parse_rewards(config.rewards)) {
      if (term.name == reward::kModelTerm)
        has_model = true;
      else
        static_cast<void>(
            reward::make_term(term.name, {config.reward_command, config.reward_timeout_s}));
    }
  });
  if (error) problems.add(error->what());
  if (has_model && config.reward_model.empty())
    problems.add("rl.reward_model", config.reward_model,
                 "must name a run of trireme reward, because rl.rewards has the term model");
  if (!error && !has_model && !config.reward_model.empty())
    problems.add("rl.reward_model", config.reward_model,
                 "must be empty, because rl.rewards has no term model");
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
  if (!(config.top_p > 0 && config.top_p <= 1))
    problems.add("rl.top_p", config.top_p, "must be greater than 0 and at most 1");
  if (config.top_k < 0) problems.add("rl.top_k", config.top_k, "must be 0 or more");
  if (config.updates < 1 || config.updates > 1000)
    problems.add("rl.updates", config.updates, "must be from 1 to 1000");
  if (config.mini_batch < 0) problems.add("rl.mini_batch", config.mini_batch, "must be 0 or more");
  if (!(config.correction_cap > 0) || !std::isfinite(config.correction_cap))
    problems.add("rl.correction_cap", config.correction_cap, "must be greater than 0");
  if (!(config.max_gap >= 0) || !std::isfinite(config.max_gap))
    problems.add("rl.max_gap", config.max_gap, "must be 0 or more");
  if (!(config.reward_timeout_s > 0))
    problems.add("rl.reward_timeout_s", config.reward_timeout_s, "must be greater than 0");
  if (!config.tools.empty() && !config.tool_command.empty())
    problems.add("rl.tool_command", config.tool_command,
                 "must be empty if rl.tools is set. Use one of the two keys");
  if (config.max_turns < 1 || config.max_turns > 1000)
    problems.add("rl.max_turns", config.max_turns, "must be from 1 to 1000");
  if (config.max_total_tokens < 2)
    problems.add("rl.max_total_tokens", config.max_total_tokens, "must be 2 or more");
  if (config.keep_rollouts < 0)
    problems.add("rl.keep_rollouts", config.keep_rollouts, "must be 0 or more");
  check_rewards(config, problems);
}

}  // namespace trireme::train
