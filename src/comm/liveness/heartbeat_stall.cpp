#include "comm/liveness/heartbeat_stall.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace trireme {

std::size_t rank_behind(const std::vector<ActivitySnapshot>& ranks) {
  const auto place = [](const ActivitySnapshot& one) {
    return std::tuple(one.step, one.operations, one.waiting);
  };
  const auto least =
      std::min_element(ranks.begin(), ranks.end(),
                       [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return static_cast<std::size_t>(least - ranks.begin());
}

double StallWatch::median_step_s() const {
  if (step_times_.empty()) return 0;
  std::vector<double> times(step_times_.begin(), step_times_.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

StallWatch::Stall StallWatch::look(double now_s, const std::vector<ActivitySnapshot>& ranks) {
  std::uint64_t moved = 0;
  bool judged = rule_.most_s > 0;
  bool waits_for_data = false;
  for (const ActivitySnapshot& one : ranks) {
    moved += one.operations + static_cast<std::uint64_t>(one.step) * 1000003U;
    judged = judged && (one.phase == "step" || one.phase == "data");
    waits_for_data = waits_for_data || one.phase == "data";
  }
  const std::int64_t step = ranks.front().step;
  if (step != step_) {
    if (step_ > 0) {
      step_times_.push_back((now_s - step_at_s_) / static_cast<double>(step - step_));
      if (step_times_.size() > kSteps) step_times_.pop_front();
    }
    step_ = step;
    step_at_s_ = now_s;
  }
  if (!moved_ || moved != *moved_ || !judged) {
    moved_ = moved;
    moved_at_s_ = now_s;
    warned_ = false;
  }
  Stall stall;
  stall.still_s = now_s - moved_at_s_;
  stall.behind = rank_behind(ranks);
  stall.limit_s = std::numeric_limits<double>::infinity();
  if (!judged) return stall;
  stall.limit_s =
      waits_for_data || step_times_.empty()
          ? rule_.most_s
          : std::min(rule_.most_s, std::max(rule_.least_s, rule_.steps * median_step_s()));
  stall.warn = !warned_ && stall.still_s > stall.limit_s / 2;
  warned_ = warned_ || stall.warn;
  stall.hung = stall.still_s > stall.limit_s;
  return stall;
}

}  // namespace trireme
