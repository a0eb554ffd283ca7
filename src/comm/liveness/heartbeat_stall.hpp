#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/liveness/activity.hpp"

namespace trireme::comm {

/// The time without progress after which a run counts as hung. It applies only in the phases "step"
/// and "data". In other phases, only the timeout of each collective applies: a save or the answers
/// of a rollout may take long without a collective.
struct HangRule {
  // maximum limit; 0: never a hang. While a rank waits for data, this is the limit
  double most_s = 0;
  // limit in a step: `steps` times the median step time, but at least least_s and at most most_s
  double least_s = 60;
  double steps = 10;
};

/// Watches the activities of all ranks on rank 0 and detects missing progress. The caller passes
/// the time, so that a test needs no clock.
class StallWatch {
 public:
  explicit StallWatch(HangRule rule) : rule_(rule) {}

  struct Stall {
    double still_s = 0;      // time since any rank made progress
    double limit_s = 0;      // current limit; infinity outside the checked phases
    bool warn = false;       // half of the limit has passed; true only once per stall
    bool hung = false;       // the limit has passed
    std::size_t behind = 0;  // the rank that is behind the others
  };

  /// Compares the activities with those of the previous call. Call it about twice per second.
  Stall look(double now_s, const std::vector<ActivitySnapshot>& ranks);

  /// Returns the median time of the last steps; 0 if no step is complete.
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

/// Returns the index of the rank that is behind the others: the rank with the fewest steps; among
/// equals, the fewest operations; among equals, a rank that is not waiting.
std::size_t rank_behind(const std::vector<ActivitySnapshot>& ranks);

/// Returns one line per rank, in the order of rank_behind(): the rank that is behind comes first.
/// `names[r]` is "rank 3 (host n2, pid 123)". Exposed for its test.
std::string describe_progress(const std::vector<std::string>& names,
                              const std::vector<ActivitySnapshot>& ranks);

}  // namespace trireme::comm
