#pragma once
#include <span>
#include <vector>

#include "train/planner/step_time.hpp"

namespace trireme::planner {

/// An optimizer step with its measured time.
struct MeasuredStep {
  UpdateFacts facts;
  Cluster cluster;
  double step_s = 0;
};

/// A constant that a fit may change.
using Constant = double TimeConstants::*;

/// Returns the relative errors: predicted / measured - 1.
std::vector<double> errors_of(std::span<const MeasuredStep> steps, const TimeConstants& constants);

/// Returns the root mean square.
double rms(std::span<const double> errors);

/// Returns the constants that predict `steps` best (least squares of relative errors). Starts at
/// `start` and changes only the constants in `free`. The search along one constant at a time with
/// shrinking steps is deterministic.
TimeConstants fit(std::span<const MeasuredStep> steps, const TimeConstants& start,
                  std::span<const Constant> free);

}  // namespace trireme::planner
