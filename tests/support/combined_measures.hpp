#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/measures.hpp"

namespace trireme::testing {

/// Combines the measures of several ranks as the two reductions of a step do.
class CombinedMeasures {
 public:
  /// Packs the measures of one rank. Ranks may come in any order.
  void add(Measures& measures, int rank) {
    std::vector<double> sums;
    std::vector<double> maxima;
    packed_ = measures.pack(sums, maxima, rank);
    if (ranks_++ == 0) {
      sums_ = std::move(sums);
      maxima_ = std::move(maxima);
      return;
    }
    for (std::size_t i = 0; i < sums.size(); ++i) sums_[i] += sums[i];
    for (std::size_t i = 0; i < maxima.size(); ++i) maxima_[i] = std::max(maxima_[i], maxima[i]);
  }

  /// Returns the number of ranks that were added.
  [[nodiscard]] int ranks() const { return ranks_; }

  [[nodiscard]] std::vector<Metric> metrics(const Measures& measures, double steps = 1) const {
    std::span<const double> sums = sums_;
    std::span<const double> maxima = maxima_;
    return measures.combine(packed_, sums, maxima, steps, ranks_);
  }

  /// Returns the values of metrics() by name.
  [[nodiscard]] std::map<std::string, double> values(const Measures& measures) const {
    std::map<std::string, double> by_name;
    for (const Metric& metric : metrics(measures)) by_name[metric.name] = metric.value;
    return by_name;
  }

 private:
  int ranks_ = 0;
  std::vector<Measures::Id> packed_;
  std::vector<double> sums_;
  std::vector<double> maxima_;
};

}  // namespace trireme::testing
