#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/order/samples.hpp"
#include "train/rl/answers.hpp"
#include "train/rl/prompts.hpp"

namespace trireme::train {

/// Prompts of validation sets have indices from here on, so that their answers have other random
/// numbers than those of training prompts.
inline constexpr std::int64_t kFirstValidPrompt = std::int64_t{1} << 40;

/// Returns every `stride`-th prompt of all sets, from prompt `first` on.
std::vector<RlPrompt> valid_prompts(std::span<const data::SampleSet> sets, std::int64_t first,
                                    std::int64_t stride);

/// Generates one greedy answer and rl.group sampled answers for each prompt. Returns the sum of the
/// rewards of the greedy answers, the number of prompts with a sampled answer that has a larger
/// reward than rl.pass_reward, and the number of prompts. Returns nullopt if a stop request ended
/// the generation.
std::optional<std::array<double, 3>> validate_prompts(const GenerationSetup& setup,
                                                      std::span<const RlPrompt> prompts,
                                                      RewardTerms& rewards);

}  // namespace trireme::train
