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
///   wsd          lr until decay_begin(), then optim.decay_shape from lr to min_lr
///   piecewise    linear between the points of optim.points, constant outside   no warmup
///   minimind-v2  lr/10 + lr/2 * (1 + cos(pi (step-1)/total))      no warmup; 1.1 lr down to lr/10
///   minimind-v3  lr * (0.1 + 0.45 * (1 + cos(pi step/total)))     no warmup
/// min_lr is final_lr(config). The last two count optimizer steps, whereas MiniMind counts
/// gradient-accumulation steps; the rates differ only within an update. Sources:
/// jingyaogong/minimind, commits 7da201a (V2) and d65ef2c (V3); Hu et al., "MiniCPM", 2024 (wsd);
/// Hägele et al., "Scaling laws and compute-optimal training beyond fixed training durations", 2024
/// (the shape sqrt).
double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t total_steps);

/// Returns the last step of the schedule wsd that has the rate lr. The decay takes the decay_steps
/// steps after it, or fewer if the warmup leaves fewer.
std::int64_t decay_begin(const OptimConfig& config, std::int64_t total_steps);

/// Returns the largest learning rate of optim.points; 0 if the list is invalid.
double largest_point(const OptimConfig& config);

/// Returns optim.points with all rates multiplied by `factor`. The list must be valid.
std::string scaled_points(const OptimConfig& config, double factor);

/// Adds a problem for each key of the schedule with an invalid value.
void check_schedule(const OptimConfig& config, Problems& problems);

/// Returns a warning if warmup and decay of wsd do not fit into the run, or if the decay begins
/// before `done` completed steps, so that the rate falls at once; "" otherwise.
std::string decay_note(const OptimConfig& config, std::int64_t total_steps, std::int64_t done);

/// Returns the final rate of cosine, linear and wsd: min_lr, or 0.1 lr rounded to the decimal that a
/// person would write (3e-5 for lr 3e-4, not 2.9999999999999997e-5).
double final_lr(const OptimConfig& config);

/// Returns a warning if warmup is longer than a run of `total_steps`, which then never reaches lr.
/// Returns "" if it is not, or if the schedule has no warmup.
std::string warmup_note(const OptimConfig& config, std::int64_t total_steps);

std::vector<std::string> schedule_names();

}  // namespace trireme::optim
