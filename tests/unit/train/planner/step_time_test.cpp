/// Predicted times beside published ones: constants are fitted here, nothing is written down.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/unit/train/planner/published.hpp"

namespace trireme::planner {
namespace {

TEST(StepTime, ThreeConstantsFitNineMegatronRows) {
  const std::vector<MeasuredStep> steps = megatron_steps();

  const TimeConstants fitted = fit(steps, TimeConstants{}, three_constants());

  const std::vector<double> errors = errors_of(steps, fitted);
  for (std::size_t i = 0; i < errors.size(); ++i)
    std::cout << megatron_rows()[i].preset << " " << 100 * errors[i] << " %\n";
  std::cout << "efficiency " << fitted.efficiency << ", bytes " << fitted.elementwise_bytes
            << ", hidden " << fitted.tp_hidden << ", rms " << 100 * rms(errors) << " %\n";
  EXPECT_LE(rms(errors), 0.06);
}

TEST(StepTime, LeavingOneMegatronRowOutPredictsIt) {
  const std::vector<MeasuredStep> steps = megatron_steps();
  double worst = 0;
  for (std::size_t left = 0; left < steps.size(); ++left) {
    std::vector<MeasuredStep> others = steps;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
    const TimeConstants fitted = fit(others, TimeConstants{}, three_constants());
    const double error = errors_of(std::vector{steps[left]}, fitted).front();
    std::cout << megatron_rows()[left].preset << " left out: " << 100 * error << " %\n";
    worst = std::max(worst, std::abs(error));
  }
  EXPECT_LE(worst, 0.16);
}

}  // namespace
}  // namespace trireme::planner
