#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trireme {

/// How the values of all ranks become one.
enum class Combine {
  sum,            // over ranks, of the last step
  weighted_mean,  // over ranks, of the last step: sum of values / sum of weights
  mean,           // over ranks, and over the steps since the last report, which are added up
  max,            // over ranks
};

/// A number that a run reports, declared once by the component that takes it; every metrics sink
/// shows it under its name.
struct Measure {
  std::string name;  // with its unit: "save_s", "mem_peak_bytes"
  Combine combine = Combine::mean;
  bool whole = false;        // a count
  std::string least_rank{};  // where given, the name of another number: the rank that has least
};

/// One number of a report, the same on all ranks.
struct Metric {
  enum class Form { real, whole, flag };
  std::string name;
  double value = 0;
  Form form = Form::real;
};

/// The measures of one rank. All ranks declare the same ones in the same order, before the first
/// pack.
class Measures {
 public:
  using Id = std::size_t;

  /// Throws Error(internal) for a name that is taken.
  Id declare(Measure measure);

  /// Adds to a mean, replaces the value of all others. `weight` counts for weighted_mean alone.
  void record(Id id, double value, double weight = 1);

  /// Numbers that a rank sends for a report.
  [[nodiscard]] std::size_t packed_size() const noexcept { return 2 * measures_.size(); }

  /// Writes packed_size() numbers, and starts anew.
  void pack(std::span<double> into);

  /// `all`: the packed numbers of every rank, one after another; `steps` since the last report.
  /// Ranks are added in their order, in fp64.
  [[nodiscard]] std::vector<Metric> combine(std::span<const double> all, double steps) const;

 private:
  struct Value {
    double value = 0;
    double weight = 0;
  };

  std::vector<Measure> measures_;
  std::vector<Value> values_;
};

}  // namespace trireme
