#include "train/rl/agent.hpp"

#include <nlohmann/json.hpp>

#include "reward/rules.hpp"
#include "reward/tool_calls.hpp"

namespace trireme::train {

Agent::Agent(const RlConfig& config, const AnswerTokens& tokens)
    : tokens_(tokens),
      turns_(text::ChatWriter(tokens.format, tokens.tokenizer)),
      max_total_tokens_(config.max_total_tokens) {
  if (!config.tools.empty()) {
    table_ = reward::ToolTable::load(config.tools);
  } else {
    program_.emplace(config.tool_command, config.reward_timeout_s);
  }
}

std::vector<std::string> Agent::answer(const std::vector<Json>& calls) {
  if (program_) return program_->answer(calls);
  std::vector<std::string> results;
  for (const Json& call : calls) results.push_back(table_->answer(call));
  return results;
}

std::vector<std::size_t> Agent::continue_with_results(std::vector<Rollout>& rollouts,
                                                      std::span<const std::size_t> open,
                                                      bool is_last) {
  std::vector<std::size_t> callers;
  std::vector<std::size_t> num_calls;
  std::vector<Json> calls;
  for (const std::size_t index : open) {
    Rollout& one = rollouts[index];
    if (one.truncated) continue;
    std::vector<Json> own = reward::parse_tool_calls(reward::answer_of(one.text));
    if (own.empty()) continue;
    one.unfinished = is_last;
    if (is_last) continue;
    callers.push_back(index);
    num_calls.push_back(own.size());
    for (Json& call : own) calls.push_back(std::move(call));
  }
  if (callers.empty()) return {};
  const std::vector<std::string> results = answer(calls);
  std::vector<std::size_t> continued;
  std::size_t first = 0;
  for (std::size_t i = 0; i < callers.size(); first += num_calls[i], ++i) {
    Rollout& one = rollouts[callers[i]];
    const std::vector<std::uint32_t> more =
        turns_.results(std::span(results).subspan(first, num_calls[i]),
                       turns_.thinking_of(tokens_.tokenizer.decode(one.prompt)));
    const auto total = std::ssize(one.prompt) + std::ssize(one.ids) + std::ssize(more);
    if (total >= max_total_tokens_) {
      one.unfinished = one.truncated = true;
      continue;
    }
    one.ids.insert(one.ids.end(), more.begin(), more.end());
    one.mask.resize(one.ids.size(), false);
    one.rollout_logprobs.resize(one.ids.size(), 0);
    continued.push_back(callers[i]);
  }
  return continued;
}

}  // namespace trireme::train
