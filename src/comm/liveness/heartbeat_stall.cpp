#include "comm/liveness/heartbeat_stall.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/error.hpp"

namespace trireme::comm {
namespace {

/// Returns a key that orders ranks by their progress.
auto progress_of(const ActivitySnapshot& rank) {
  return std::tuple(rank.step, rank.operations, rank.waiting);
}

bool is_behind(const ActivitySnapshot& a, const ActivitySnapshot& b) {
  return progress_of(a) < progress_of(b);
}

}  // namespace

std::size_t rank_behind(const std::vector<ActivitySnapshot>& ranks) {
  return static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.end(), is_behind) -
                                  ranks.begin());
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
  bool checked = rule_.most_s > 0;
  bool waits_for_data = false;
  for (const ActivitySnapshot& one : ranks) {
    moved += one.operations + static_cast<std::uint64_t>(one.step) * 1000003U;
    checked = checked && (one.phase == "step" || one.phase == "data");
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
  if (!moved_ || moved != *moved_ || !checked) {
    moved_ = moved;
    moved_at_s_ = now_s;
    warned_ = false;
  }
  Stall stall;
  stall.still_s = now_s - moved_at_s_;
  stall.behind = rank_behind(ranks);
  stall.limit_s = std::numeric_limits<double>::infinity();
  if (!checked) return stall;
  stall.limit_s =
      waits_for_data || step_times_.empty()
          ? rule_.most_s
          : std::min(rule_.most_s, std::max(rule_.least_s, rule_.steps * median_step_s()));
  stall.warn = !warned_ && stall.still_s > stall.limit_s / 2;
  warned_ = warned_ || stall.warn;
  stall.hung = stall.still_s > stall.limit_s;
  return stall;
}

std::string describe_progress(const std::vector<std::string>& names,
                              const std::vector<ActivitySnapshot>& ranks) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return is_behind(ranks[a], ranks[b]); });
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(order.size(), kMost); ++i) {
    const auto& now = ranks[order[i]];
    text += formatted("\n  {}{}: step {}, {} operations, ", names[order[i]],
                      i == 0 && is_behind(now, ranks[order.back()]) ? " is behind" : "", now.step,
                      now.operations);
    if (now.operation.empty()) {
      text += "no collective yet";
    } else {
      text += formatted("{}{} '{}' of group {}, operation {}{}",
                        now.complete  ? "finished "
                        : now.waiting ? "waits in "
                                      : "has not finished ",
                        now.operation, now.tag, now.group, now.sequence,
                        now.timed_out ? ", timed out" : "");
    }
    text += formatted(", phase {}", now.phase);
  }
  if (order.size() > kMost)
    text += formatted("\n  and {} ranks ahead of them", order.size() - kMost);
  return text;
}

}  // namespace trireme::comm
