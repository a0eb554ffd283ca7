#include "core/measures.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trireme {

Measures::Id Measures::declare(Measure measure) {
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(measures_.begin(), measures_.end(), [&](const Measure& other) {
      return other.name == name || other.least_rank == name;
    });
  };
  for (const std::string& name : {measure.name, measure.least_rank}) {
    const bool twice = !name.empty() && (is_taken(name) || measure.name == measure.least_rank);
    if (twice) fail(ErrorKind::internal, "measure {} is declared twice", name);
  }
  measures_.push_back(std::move(measure));
  values_.emplace_back();
  return measures_.size() - 1;
}

void Measures::record(Id id, double value, double weight) {
  Value& mine = values_.at(id);
  if (measures_[id].combine == Combine::mean) {
    mine.value += value;
  } else {
    mine = {value, weight};
  }
}

void Measures::pack(std::span<double> into) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    into[2 * i] = values_[i].value;
    into[2 * i + 1] = values_[i].weight;
  }
  values_.assign(values_.size(), {});
}

std::vector<Metric> Measures::combine(std::span<const double> all, double steps) const {
  const std::size_t ranks = all.size() / packed_size();
  std::vector<Metric> metrics;
  for (std::size_t i = 0; i < measures_.size(); ++i) {
    const Measure& measure = measures_[i];
    const auto value_of = [&](std::size_t rank) { return all[rank * packed_size() + 2 * i]; };
    double value = measure.combine == Combine::max ? value_of(0) : 0;
    double weight = 0;
    std::size_t least = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double one = value_of(rank);
      value = measure.combine == Combine::max ? std::max(value, one) : value + one;
      weight += all[rank * packed_size() + 2 * i + 1];
      if (one < value_of(least)) least = rank;
    }
    if (measure.combine == Combine::weighted_mean) value /= weight;
    if (measure.combine == Combine::mean) value /= steps * static_cast<double>(ranks);
    metrics.push_back(
        {measure.name, value, measure.whole ? Metric::Form::whole : Metric::Form::real});
    if (!measure.least_rank.empty())
      metrics.push_back({measure.least_rank, static_cast<double>(least), Metric::Form::whole});
  }
  return metrics;
}

}  // namespace trireme
