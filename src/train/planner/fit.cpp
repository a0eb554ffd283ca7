#include "train/planner/fit.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::planner {
namespace {

/// Keeps one predictor per measured step, which caches its schedule.
class Residuals {
 public:
  explicit Residuals(std::span<const MeasuredStep> steps) : steps_(steps) {
    for (const MeasuredStep& step : steps) predictors_.emplace_back(step.cluster, TimeConstants{});
  }

  std::vector<double> at(const TimeConstants& constants) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      predictors_[i].use(constants);
      errors.push_back(predictors_[i].predict(steps_[i].facts).step_s / steps_[i].step_s - 1);
    }
    return errors;
  }

 private:
  std::span<const MeasuredStep> steps_;
  std::vector<StepPredictor> predictors_;
};

/// Clamps the constants to their valid ranges.
void keep_in_range(TimeConstants& constants) {
  constants.efficiency = std::clamp(constants.efficiency, 1e-4, 1.0);
  constants.tp_hidden = std::clamp(constants.tp_hidden, 0.0, 1.0);
  constants.elementwise_bytes = std::clamp(constants.elementwise_bytes, 1.0, 1e5);
  constants.network_factor = std::clamp(constants.network_factor, 1e-3, 1e3);
  constants.overhead_s = std::max(constants.overhead_s, 0.0);
}

}  // namespace

double rms(std::span<const double> errors) {
  double sum = 0;
  for (const double error : errors) sum += error * error;
  return errors.empty() ? 0 : std::sqrt(sum / static_cast<double>(errors.size()));
}

std::vector<double> errors_of(std::span<const MeasuredStep> steps, const TimeConstants& constants) {
  return Residuals(steps).at(constants);
}

TimeConstants fit(std::span<const MeasuredStep> steps, const TimeConstants& start,
                  std::span<const Constant> free) {
  Residuals residuals(steps);
  TimeConstants best = start;
  double error = rms(residuals.at(best));
  const auto take_if_better = [&](TimeConstants tried) {
    keep_in_range(tried);
    const double its = rms(residuals.at(tried));
    if (its >= error) return false;
    best = tried;
    error = its;
    return true;
  };
  for (double step = 0.5; step > 1e-3;) {
    const TimeConstants before = best;
    bool better = false;
    for (const Constant constant : free) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        TimeConstants tried = best;
        tried.*constant *= factor;
        better = take_if_better(tried) || better;
      }
    }
    if (!better) {
      step /= 2;
      continue;
    }
    TimeConstants further = best;  // constants trade off against each other: extrapolate the change
    for (const Constant constant : free)
      if (before.*constant > 0) further.*constant *= best.*constant / before.*constant;
    take_if_better(further);
  }
  return best;
}

}  // namespace trireme::planner
