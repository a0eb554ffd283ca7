#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/measures.hpp"

namespace trireme::objective {

/// Values of an objective that a step reports. Each is a sum over its micro-batches and ranks
/// divided by a common weight (targets or pairs), which is summed the same way.
class StepMeans {
 public:
  StepMeans(Measures& measures, std::span<const std::string_view> names);

  /// Adds one micro-batch of step `step`, as zeros if another rank reports the same numbers.
  void add(std::int64_t step, std::span<const double> sums, double weight);

  [[nodiscard]] double weight() const { return weight_; }

 private:
  Measures& measures_;
  std::vector<Measures::Id> ids_;
  std::vector<double> sums_;
  double weight_ = 0;
  std::int64_t step_ = -1;
};

}  // namespace trireme::objective
