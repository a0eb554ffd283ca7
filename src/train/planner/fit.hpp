#pragma once
#include <span>
#include <vector>

#include "train/planner/step_time.hpp"

namespace trireme::planner {

/// An update whose time is known.
struct MeasuredStep {
  UpdateFacts facts;
  Cluster cluster;
  double step_s = 0;
};

/// A constant that a fit may choose.
using Constant = double TimeConstants::*;

/// Relative errors, predicted over measured - 1.
std::vector<double> errors_of(std::span<const MeasuredStep> steps, const TimeConstants& constants);

/// Root of the mean square.
double rms(std::span<const double> errors);

/// The constants that predict `steps` best (least squares of relative errors), from `start`; only
/// those in `free` change. By a search along each of them in turn with shrinking steps: the same
/// result everywhere.
TimeConstants fit(std::span<const MeasuredStep> steps, const TimeConstants& start,
                  std::span<const Constant> free);

}  // namespace trireme::planner
