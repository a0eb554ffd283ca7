#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The reduction of all ranks' values to one value.
enum class Combine {
  sum,            // over ranks, last step
  weighted_mean,  // over ranks, last step: sum of values / sum of weights
  mean,           // over ranks and over the steps since the last report, added up
  max,            // over ranks
  norm,           // over ranks, last step: square root of the sum of the recorded squares
  histogram,      // over ranks, last step: sum of the counts of each bucket
  min,            // over ranks; infinity on ranks without a value
};

/// A number that a run reports. The component that measures it declares it once.
struct Measure {
  std::string name;  // includes the unit: "save_s", "mem_peak_bytes"
  Combine combine = Combine::mean;
  bool whole = false;  // an integer count
  /// The measure is only in reports before which it was recorded. All ranks must record it in the
  /// same steps.
  bool occasional = false;
  std::size_t num_buckets = 0;  // only for a histogram
  // Names of more numbers, for a mean of seconds: the rank with the smallest or largest value, and
  // this value. Empty: no such number. A value needs its rank.
  std::string least_rank{};
  std::string least{};
  std::string most_rank{};
  std::string most{};
};

/// One number of a report, or a text, equal on all ranks.
struct Metric {
  enum class Form { real, whole, flag, text, histogram };
  std::string name;
  double value = 0;
  Form form = Form::real;
  std::string text{};
  std::vector<double> counts{};  // number of elements in each bucket of a histogram

  /// Returns true if the metric is one number, and neither a text nor a histogram.
  [[nodiscard]] bool is_number() const { return form != Form::text && form != Form::histogram; }
};

/// Returns the unit of a metric from the end of its name: "s", "bytes", "per_s", or "" for a number
/// without a unit.
std::string_view unit_of(std::string_view name);

/// The rank with the largest value, found by a maximum over ranks. The value is rounded to
/// microseconds; of equal values, the lowest rank counts.
class RankedMax {
 public:
  /// Returns the number that `rank` contributes for `seconds`.
  [[nodiscard]] static double packed(double seconds, int rank);
  [[nodiscard]] static int rank_of(double packed_max);
  [[nodiscard]] static double seconds_of(double packed_max);
};

/// The measures of one rank. All ranks declare the same ones in order, before the first pack().
///
/// The ranks combine their values by two reductions: `sums` are added over ranks, and the maximum
/// over ranks is taken of `maxima`. Their sizes do not depend on the number of ranks.
class Measures {
 public:
  using Id = std::size_t;

  /// Throws Error(internal) if the name is already declared.
  Id declare(Measure measure);

  /// Adds to a mean, or replaces the value of other measures. Only weighted_mean uses `weight`.
  void record(Id id, double value, double weight = 1);

  /// Replaces the counts of a histogram. There is one count for each bucket.
  void record_counts(Id id, std::vector<double> counts);

  /// Returns the value that this rank has recorded since the last pack().
  [[nodiscard]] double recorded(Id id) const { return values_.at(id).value; }

  [[nodiscard]] std::span<const Measure> declared() const noexcept { return measures_; }

  /// Appends the values of this rank to both lists and resets them. Returns the measures that the
  /// lists hold: all but occasional ones that were not recorded.
  std::vector<Id> pack(std::vector<double>& sums, std::vector<double>& maxima, int rank);

  /// Returns the metrics of all ranks over `steps` steps since the last report. Removes the numbers
  /// that pack() has appended from the front of both lists, which the ranks have combined. `packed`:
  /// the result of pack(). If the sums were added in rank order in fp64, the metrics are bit for bit
  /// the same for every call.
  [[nodiscard]] std::vector<Metric> combine(std::span<const Id> packed,
                                            std::span<const double>& sums,
                                            std::span<const double>& maxima, double steps,
                                            int ranks) const;

 private:
  struct Value {
    double value = 0;
    double weight = 0;
    bool is_recorded = false;
    std::vector<double> counts{};
  };

  std::vector<Measure> measures_;
  std::vector<Value> values_;
};

}  // namespace trireme
