#pragma once
#include <memory>

#include "reward/reward.hpp"

namespace trireme::reward {

/// Creates the term of a program that stays running. For each sample, the program reads one line
/// {"text", "ids", "turns", "truncated", "record"} and writes one line: a finite number, or an
/// object {"reward": number}. Every other answer is Error(data). Throws Error(usage) if
/// options.command is empty or the time limit is not positive.
std::unique_ptr<RewardTerm> make_command_term(const RewardOptions& options);

}  // namespace trireme::reward
