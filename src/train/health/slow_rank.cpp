#include "train/health/slow_rank.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

constexpr double kMostReports = 0.75;

const char* advice(const std::string& phase) {
  if (phase == "data") return "compare the disk and the loader thread of this host with the others";
  if (phase == "compute")
    return "compare clock rate, temperature and other programs on this host with the others";
  if (phase == "communication") return "compare the network links of this host with the others";
  return "look for other programs on this host, and for slow files of this rank";
}

}  // namespace

std::optional<std::string> SlowRankWatch::add(SlowStep report) {
  if (!warm_) {
    warm_ = true;
    return std::nullopt;
  }
  window_.push_back(std::move(report));
  std::int64_t steps = 0;
  for (const SlowStep& one : window_) steps += one.num_steps;
  while (window_.size() > 2 && steps - window_.front().num_steps >= kSteps) {
    steps -= window_.front().num_steps;
    window_.pop_front();
  }
  if (steps < kSteps || window_.size() < 2) return std::nullopt;

  const SlowStep& last = window_.back();
  double excess_s = 0;
  double step_s = 0;
  std::size_t count = 0;
  std::map<std::string, double> phases;
  for (const SlowStep& one : window_) {
    const auto num = static_cast<double>(one.num_steps);
    step_s += num * one.step_time_s;
    if (one.rank != last.rank) continue;
    ++count;
    excess_s += num * one.excess_s;
    phases[one.phase] += num * one.excess_s;
  }
  const bool is_slow =
      static_cast<double>(count) >= kMostReports * static_cast<double>(window_.size()) &&
      excess_s > kSlow * step_s;
  if (!is_slow) return std::nullopt;
  const std::string phase =
      std::max_element(phases.begin(), phases.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  const std::string name = formatted("{} {}", last.rank, phase);
  if (name == named_ && last.step - named_step_ < kQuietSteps) return std::nullopt;
  named_ = name;
  named_step_ = last.step;
  return formatted(
      "rank {} on host {} is slow: the other ranks wait {} a step for it ({} % of the last {} steps), in phase {}; {}",
      last.rank, last.host, format_seconds(excess_s / static_cast<double>(steps)),
      std::lround(100 * excess_s / step_s), steps, phase, advice(phase));
}

}  // namespace trireme::train
