#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reward/reward.hpp"

/// The reward rules of MiniMind. Lengths count Unicode characters, without white space at both
/// ends. Source: jingyaogong/minimind, commit d65ef2c, trainer/train_grpo.py and train_agent.py.
namespace trireme::reward {

/// Returns the text after the first "</think>", or the whole text, without white space at both
/// ends.
std::string_view answer_of(std::string_view text);

/// Returns 0.5 if the text has 20 to 800 characters, else -0.5.
double length_reward(const Sample& sample);

/// Returns 0 without "</think>". Otherwise the sum of two parts: 1 if the text before the first
/// "</think>" has 20 to 300 characters, else -0.5; and 0.25 if "</think>" occurs once, else -0.25.
double thinking_reward(const Sample& sample);

/// Returns -min(0.5, (n - u) / n) for an answer with n 3-grams of words and signs, u of them
/// different; 0 if it has none. The answer is the text after the first "</think>". If the answers
/// call tools, it is the text after the last call, unless that text is empty.
double repetition_reward(const Sample& sample);

/// Returns -0.5 for each "<tool_call>" without "</tool_call>" and the reverse, summed over answers.
double tags_reward(const Sample& sample);

/// Returns 0 without calls. Otherwise 0.5 if the gap is 0, else -0.5 * gap, with
/// gap = |valid calls - number of gt| + invalid calls; 0.5 less if the sample is unfinished.
/// A call is valid if the record declares the tool and the arguments have all required names.
double tools_reward(const Sample& sample);

/// Returns 2.5 * (found texts of "gt") / (number of "gt"); 0 without "gt" or if the sample is
/// unfinished. A text is found if the answer contains it (without case), or if both are numbers
/// that differ by less than 1e-6.
double gt_reward(const Sample& sample);

}  // namespace trireme::reward
