#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "comm/liveness/activity.hpp"

namespace trireme {

/// When standing still counts as a hang. Only the phases "step" and "data" are judged: in all
/// others a collective that waits has its own timeout.
struct HangRule {
  double most_s = 0;    // 0: never judged. While a rank waits for data, this alone
  double least_s = 60;  // in a step: `steps` times the median step, at least this, at most most_s
  double steps = 10;
};

/// Watches the activities of all ranks, on rank 0, and says who stands still. Time is given by the
/// caller, so that a test needs no clock.
class StallWatch {
 public:
  explicit StallWatch(HangRule rule) : rule_(rule) {}

  struct Stall {
    double still_s = 0;      // no rank has moved for so long
    double limit_s = 0;      // what the rule bears; infinity outside the judged phases
    bool warn = false;       // half of the limit has passed, said once
    bool hung = false;       // the limit has passed
    std::size_t behind = 0;  // the rank that is behind the others
  };

  /// Called about twice a second.
  Stall look(double now_s, const std::vector<ActivitySnapshot>& ranks);

  /// Of the last steps; 0 while none is known.
  [[nodiscard]] double median_step_s() const;

 private:
  static constexpr std::size_t kSteps = 31;

  HangRule rule_;
  std::optional<std::uint64_t> moved_;
  double moved_at_s_ = 0;
  std::int64_t step_ = 0;
  double step_at_s_ = 0;
  std::deque<double> step_times_;
  bool warned_ = false;
};

/// Index of the rank that is behind: fewest steps, then fewest operations, then
/// not waiting for others.
std::size_t rank_behind(const std::vector<ActivitySnapshot>& ranks);

}  // namespace trireme
