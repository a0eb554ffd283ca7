#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace trireme {

/// The reduction of all ranks' values to one value.
enum class Combine {
  sum,            // over ranks, last step
  weighted_mean,  // over ranks, last step: sum of values / sum of weights
  mean,           // over ranks and over the steps since the last report, added up
  max,            // over ranks
};

/// A number that a run reports. The component that measures it declares it once.
struct Measure {
  std::string name;  // includes the unit: "save_s", "mem_peak_bytes"
  Combine combine = Combine::mean;
  bool whole = false;  // an integer count
  // if set, the name of one more number: the rank with the smallest value
  std::string least_rank{};
};

/// One number of a report, equal on all ranks.
struct Metric {
  enum class Form { real, whole, flag };
  std::string name;
  double value = 0;
  Form form = Form::real;
};

/// The measures of one rank. All ranks declare the same ones in order, before the first pack().
class Measures {
 public:
  using Id = std::size_t;

  /// Throws Error(internal) if the name is already declared.
  Id declare(Measure measure);

  /// Adds to a mean, or replaces the value of other measures. Only weighted_mean uses `weight`.
  void record(Id id, double value, double weight = 1);

  /// Returns the count of numbers that a rank sends for a report.
  [[nodiscard]] std::size_t packed_size() const noexcept { return 2 * measures_.size(); }

  /// Writes packed_size() numbers and resets the values.
  void pack(std::span<double> into);

  /// Combines the packed numbers of all ranks (`all`, in rank order) over `steps` steps since the
  /// last report. Ranks are added in their order, in fp64.
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
