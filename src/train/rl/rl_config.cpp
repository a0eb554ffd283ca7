#include "train/rl/rl_config.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::train {
namespace {

std::vector<std::string> names(std::span<const std::string_view> values) {
  return {values.begin(), values.end()};
}

void check_rewards(const RlConfig& config, Problems& problems) {
  bool has_model = false;
  bool has_command = false;
  const auto error = comm::capture([&] {
    for (const reward::WeightedTerm& term : reward::parse_rewards(config.rewards)) {
      has_command = has_command || term.name == "command";
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
  if (!error && !has_command && !config.reward_command.empty())
    problems.add("rl.reward_command", config.reward_command,
                 formatted("must be empty, because rl.rewards has no term command. Give "
                           "--rl.rewards {},command=1 to use the program",
                           config.rewards));
}

void check_ppo(const PpoConfig& config, Problems& problems) {
  const auto number = [&](const char* key, double value, bool valid, const char* allowed) {
    if (!valid || !std::isfinite(value)) problems.add(key, value, allowed);
  };
  const auto is_share = [](double value) { return value >= 0 && value <= 1; };
  number("ppo.critic_lr", config.critic_lr, config.critic_lr >= 0, "must be 0 or more");
  number("ppo.gamma", config.gamma, is_share(config.gamma), "must be from 0 to 1");
  number("ppo.lam", config.lam, is_share(config.lam), "must be from 0 to 1");
  number("ppo.value_clip", config.value_clip, config.value_clip > 0, "must be greater than 0");
  number("ppo.value_weight", config.value_weight, config.value_weight >= 0, "must be 0 or more");
  number("ppo.early_stop_kl", config.early_stop_kl, config.early_stop_kl >= 0, "must be 0 or more");
}

}  // namespace

std::string RlConfig::cuts() const {
  std::vector<std::string> keys;
  if (top_p < 1) keys.push_back(formatted("rl.top_p = {}", top_p));
  if (top_k > 0) keys.push_back(formatted("rl.top_k = {}", top_k));
  return joined(keys, ", ");
}

void check(const RlConfig& config, Problems& problems) {
  objective::check(config.loss, problems);
  problems.one_of("rl.advantage", config.advantage, names(kAdvantages));
  problems.one_of("rl.divide", config.divide, names(kDivides));
  problems.one_of("rl.old", config.old, names(kOlds));
  problems.one_of("rl.correction", config.correction, names(kCorrections));
  problems.one_of("rl.truncated", config.truncated, std::vector<std::string>{"count", "mask"});
  const std::string& objective = config.loss.objective;
  const std::int64_t least = config.loss.compares_group() ? 2 : 1;
  if (config.group < least || config.group > 4096)
    problems.add("rl.group", config.group,
                 formatted("must be from {} to 4096 with rl.objective = {}", least, objective));
  if (objective != "grpo" && objective != "cispo" && config.advantage != "group")
    problems.add("rl.advantage", config.advantage,
                 formatted("must not be set with rl.objective = {}", objective));
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
  problems.one_of("rl.cuda_graph", config.cuda_graph, names(generate::kCudaGraphModes));
  check_rewards(config, problems);
  check_ppo(config.ppo, problems);
}

}  // namespace trireme::train
