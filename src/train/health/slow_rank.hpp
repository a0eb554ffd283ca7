#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace trireme::train {

/// The slowest rank of one report, as mean seconds per step.
struct SlowStep {
  std::int64_t step = 0;
  std::int64_t num_steps = 1;  // steps since the last report
  std::int64_t rank = 0;
  std::string host;
  std::string phase;
  double excess_s = 0;     // time that the other ranks wait for this rank
  double step_time_s = 0;  // without saves and validations
};

/// Finds a rank that delays the others again and again. A rank is slow if it is the slowest one in
/// three of four reports, and the others wait for it for more than 10 % of the time. It is named
/// after at most 20 steps if each step has a report.
class SlowRankWatch {
 public:
  /// Adds a report; the first one (warm-up) does not count. Returns a warning if a rank is newly
  /// slow. The same rank in the same phase is named again after kQuietSteps.
  std::optional<std::string> add(SlowStep report);

  static constexpr std::int64_t kSteps = 12;  // least number of steps that are compared
  static constexpr std::int64_t kQuietSteps = 1000;
  static constexpr double kSlow = 0.1;  // share of the time

 private:
  std::deque<SlowStep> window_;
  bool warm_ = false;
  std::string named_;
  std::int64_t named_step_ = 0;
};

}  // namespace trireme::train
