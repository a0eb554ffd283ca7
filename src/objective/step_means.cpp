#include "objective/step_means.hpp"

#include <algorithm>
#include <string>

namespace trireme::objective {

StepMeans::StepMeans(Measures& measures, std::span<const std::string_view> names)
    : measures_(measures), sums_(names.size(), 0) {
  for (const std::string_view name : names)
    ids_.push_back(measures.declare({std::string(name), Combine::weighted_mean}));
}

void StepMeans::add(std::int64_t step, std::span<const double> sums, double weight) {
  if (step != step_) {
    std::fill(sums_.begin(), sums_.end(), 0);
    weight_ = 0;
    step_ = step;
  }
  weight_ += weight;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += sums[i];
    measures_.record(ids_[i], sums_[i], weight_);
  }
}

}  // namespace trireme::objective
