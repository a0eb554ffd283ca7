#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "optim/config.hpp"

namespace trireme::optim {

/// Returns the learning rate of optimizer step `step` (from 1) of `total_steps`.
///
/// Warmup is linear: lr * step / warmup_steps. Afterwards, with t = (step - warmup) / (total -
/// warmup) in (0, 1]:
///   cosine       min_lr + (lr - min_lr) * (1 + cos(pi t)) / 2
///   linear       lr + (min_lr - lr) * t
///   constant     lr
///   minimind-v2  lr/10 + lr/2 * (1 + cos(pi (step-1)/total))      no warmup; 1.1 lr down to lr/10
///   minimind-v3  lr * (0.1 + 0.45 * (1 + cos(pi step/total)))     no warmup
/// min_lr is final_lr(config). The last two count optimizer steps, whereas MiniMind counts
/// gradient-accumulation steps; the rates differ only within an update. Source:
/// jingyaogong/minimind, commits 7da201a (V2) and d65ef2c (V3).
double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t total_steps);

/// Returns the final rate of cosine and linear: min_lr, or 0.1 lr rounded to the decimal that a
/// person would write (3e-5 for lr 3e-4, not 2.9999999999999997e-5).
double final_lr(const OptimConfig& config);

/// Returns a warning if warmup is longer than a run of `total_steps`, which then never reaches lr.
/// Returns "" if it is not, or if the schedule has no warmup.
std::string warmup_note(const OptimConfig& config, std::int64_t total_steps);

std::vector<std::string> schedule_names();

}  // namespace trireme::optim
