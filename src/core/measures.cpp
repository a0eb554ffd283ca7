#include "core/measures.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"

namespace trireme {
namespace {

// The time takes 33 bits of a double's integers and the rank 20.
constexpr double kRanks = 1 << 20;
constexpr double kMost_s = 8000;

std::array<const std::string*, 5> names_of(const Measure& measure) {
  return {&measure.name, &measure.least_rank, &measure.least, &measure.most_rank, &measure.most};
}

void add_ranked(std::vector<Metric>& metrics, const std::string& rank_name, double packed,
                const std::string& value_name, double value) {
  metrics.push_back(
      {rank_name, static_cast<double>(RankedMax::rank_of(packed)), Metric::Form::whole});
  if (!value_name.empty()) metrics.push_back({value_name, value, Metric::Form::real});
}

Metric histogram_of(const Measure& measure, std::span<const double>& sums) {
  const auto counts = sums.first(measure.num_buckets);
  sums = sums.subspan(measure.num_buckets);
  return {measure.name, 0, Metric::Form::histogram, {}, {counts.begin(), counts.end()}};
}

double take(std::span<const double>& numbers) {
  const double first = numbers.front();
  numbers = numbers.subspan(1);
  return first;
}

}  // namespace

std::string_view unit_of(std::string_view name) {
  for (const std::string_view unit : {"per_s", "bytes", "s"}) {
    if (name.size() > unit.size() && name.ends_with(unit) &&
        name[name.size() - unit.size() - 1] == '_')
      return unit;
  }
  return "";
}

double RankedMax::packed(double seconds, int rank) {
  const double micros = std::round(std::clamp(seconds, 0.0, kMost_s) * 1e6);
  return micros * kRanks + (kRanks - 1 - rank);
}

int RankedMax::rank_of(double packed_max) {
  return static_cast<int>(kRanks - 1 - std::fmod(packed_max, kRanks));
}

double RankedMax::seconds_of(double packed_max) {
  return std::floor(packed_max / kRanks) / 1e6;
}

Measures::Id Measures::declare(Measure measure) {
  std::vector<std::string> taken;
  for (const Measure& other : measures_)
    for (const std::string* name : names_of(other)) taken.push_back(*name);
  for (const std::string* name : names_of(measure)) {
    if (name->empty()) continue;
    if (std::find(taken.begin(), taken.end(), *name) != taken.end())
      fail(ErrorKind::internal, "measure {} is declared twice", *name);
    taken.push_back(*name);
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
  mine.is_recorded = true;
}

void Measures::record_counts(Id id, std::vector<double> counts) {
  if (counts.size() != measures_.at(id).num_buckets)
    fail(ErrorKind::internal, "histogram {} has {} counts for {} buckets", measures_[id].name,
         counts.size(), measures_[id].num_buckets);
  values_[id].counts = std::move(counts);
  values_[id].is_recorded = true;
}

std::vector<Measures::Id> Measures::pack(std::vector<double>& sums, std::vector<double>& maxima,
                                         int rank) {
  std::vector<Id> packed;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (measures_[i].occasional && !values_[i].is_recorded) continue;
    packed.push_back(i);
    const Combine combine = measures_[i].combine;
    if (combine == Combine::histogram) {
      std::vector<double>& counts = values_[i].counts;
      counts.resize(measures_[i].num_buckets);  // nothing was recorded: no elements
      sums.insert(sums.end(), counts.begin(), counts.end());
      continue;
    }
    if (combine == Combine::min) {  // the largest negative value is the minimum
      maxima.push_back(-values_[i].value);
      continue;
    }
    (combine == Combine::max ? maxima : sums).push_back(values_[i].value);
    if (combine == Combine::weighted_mean) sums.push_back(values_[i].weight);
    if (!measures_[i].least_rank.empty())  // the largest difference is the least value
      maxima.push_back(RankedMax::packed(kMost_s - values_[i].value, rank));
    if (!measures_[i].most_rank.empty())
      maxima.push_back(RankedMax::packed(values_[i].value, rank));
  }
  values_.assign(values_.size(), {});
  return packed;
}

std::vector<Metric> Measures::combine(std::span<const Id> packed, std::span<const double>& sums,
                                      std::span<const double>& maxima, double steps,
                                      int ranks) const {
  std::vector<Metric> metrics;
  for (const Id id : packed) {
    const Measure& measure = measures_.at(id);
    double value = 0;
    switch (measure.combine) {
      case Combine::sum:
        value = take(sums);
        break;
      case Combine::weighted_mean:
        value = take(sums);
        value /= take(sums);
        break;
      case Combine::mean:
        value = take(sums) / (steps * ranks);
        break;
      case Combine::max:
        value = take(maxima);
        break;
      case Combine::min:
        value = -take(maxima);
        break;
      case Combine::norm:
        value = std::sqrt(take(sums));
        break;
      case Combine::histogram:
        metrics.push_back(histogram_of(measure, sums));
        continue;
    }
    metrics.push_back(
        {measure.name, value, measure.whole ? Metric::Form::whole : Metric::Form::real});
    if (!measure.least_rank.empty()) {
      const double ranked = take(maxima);
      add_ranked(metrics, measure.least_rank, ranked, measure.least,
                 (kMost_s - RankedMax::seconds_of(ranked)) / steps);
    }
    if (!measure.most_rank.empty()) {
      const double ranked = take(maxima);
      add_ranked(metrics, measure.most_rank, ranked, measure.most,
                 RankedMax::seconds_of(ranked) / steps);
    }
  }
  return metrics;
}

}  // namespace trireme
