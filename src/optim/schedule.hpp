#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "optim/config.hpp"

namespace trireme {

/// Learning rate of optimizer step `step` (from 1) of `total_steps`.
///
/// Warm-up is linear, lr * step / warmup_steps. Then, with t = (step - warmup) / (total - warmup)
/// in (0, 1]:
///   cosine       min_lr + (lr - min_lr) * (1 + cos(pi t)) / 2    (final_lr for min_lr)
///   linear       lr + (min_lr - lr) * t
///   constant     lr
///   minimind-v2  lr/10 + lr/2 * (1 + cos(pi (step-1)/total))         starts at 1.1 lr, ends near
///   lr/10; no warm-up minimind-v3  lr * (0.1 + 0.45 * (1 + cos(pi step/total)))         no warm-up
/// The last two count optimizer steps; MiniMind counts micro-steps, which differs within one update
/// only. Source: jingyaogong/minimind, commits 7da201a (V2) and d65ef2c (V3).
double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t total_steps);

/// Where cosine and linear end: min_lr, or 0.1 lr, as the decimal that a person would write (3e-5
/// of 3e-4, not 2.9999999999999997e-5).
double final_lr(const OptimConfig& config);

/// That warm-up is longer than a run of `total_steps`, which then never reaches lr; "" where it is
/// not, and where the schedule has none.
std::string warmup_note(const OptimConfig& config, std::int64_t total_steps);

/// Names that `optim.schedule` takes.
std::vector<std::string> schedule_names();

}  // namespace trireme
