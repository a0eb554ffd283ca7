#include "train/rl/valid_prompts.hpp"

#include <algorithm>
#include <utility>

namespace trireme::train {

std::vector<RlPrompt> valid_prompts(std::span<const data::SampleSet> sets, std::int64_t first,
                                    std::int64_t stride) {
  std::vector<RlPrompt> prompts;
  std::int64_t index = 0;
  for (const data::SampleSet& samples : sets) {
    const data::RlPrompts reader(samples.set(), /*seed=*/0, /*shuffle=*/false);
    for (std::uint64_t i = 0; i < samples.size(); ++i, ++index) {
      if (index < first || (index - first) % stride != 0) continue;
      data::RlPrompts::Prompt prompt = reader.at(samples.documents().begin + i);
      prompts.push_back(
          {kFirstValidPrompt + index, std::move(prompt.ids), std::move(prompt.record)});
    }
  }
  return prompts;
}

std::optional<std::array<double, 3>> validate_prompts(const GenerationSetup& setup,
                                                      std::span<const RlPrompt> prompts,
                                                      RewardTerms& rewards) {
  std::array<double, 3> sums{};
  if (prompts.empty()) return sums;
  const auto scored = [&](const RlConfig& config) {
    auto answers = generate_answers({setup.model, setup.tokens, config, setup.agent, setup.seed,
                                     setup.weights_version, setup.is_stopped},
                                    prompts);
    if (answers) rewards.score(*answers);
    return answers;
  };
  RlConfig greedy = setup.config;
  greedy.group = 1;
  greedy.loss.temperature = 0;
  const auto best = scored(greedy);
  if (!best) return std::nullopt;
  for (const Rollout& one : *best) sums[0] += one.reward;
  const auto sampled = scored(setup.config);
  if (!sampled) return std::nullopt;
  const auto group = static_cast<std::size_t>(setup.config.group);
  for (std::size_t first = 0; first < sampled->size(); first += group) {
    const bool passes = std::ranges::any_of(
        std::span(*sampled).subspan(first, group),
        [&](const Rollout& one) { return one.reward > setup.config.pass_reward; });
    sums[1] += passes ? 1 : 0;
  }
  sums[2] = static_cast<double>(prompts.size());
  return sums;
}

}  // namespace trireme::train
