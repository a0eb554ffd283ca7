#include "train/report/slowest.hpp"

#include <algorithm>
#include <array>

namespace trireme::train {
namespace {

constexpr double kEqual = 0.02;  // share of the step time below which no rank is slow

struct Phase {
  const char* name;
  const char* mean;
  const char* most;
  const char* most_rank;
};

// "other" comes first: a rank may be slow in no measured phase.
constexpr std::array kPhases{Phase{"other", "other_s", "other_max_s", "other_max_rank"},
                             Phase{"compute", "compute_s", "compute_max_s", "compute_max_rank"},
                             Phase{"data", "data_wait_s", "data_wait_max_s", "data_wait_max_rank"}};

}  // namespace

SlowestRank slowest_of(const MetricsLine& line, std::int64_t num_ranks) {
  const auto others = static_cast<double>(std::max<std::int64_t>(num_ranks - 1, 1));
  // The difference to the mean of the others, from the mean of all.
  const auto over_others = [&](double from_mean) {
    return from_mean * static_cast<double>(num_ranks) / others;
  };
  const double least_wait_s = line.value_or("peer_wait_min_s", 0);
  SlowestRank slowest{static_cast<std::int64_t>(line.value_or("slowest_rank", 0)), "",
                      std::max(0.0, over_others(line.value_or("peer_wait_s", 0) - least_wait_s))};
  const bool is_slow = slowest.excess_s > kEqual * line.value_or("step_time_s", 0);
  double longest_s = -1;
  for (const Phase& phase : kPhases) {
    double seconds = line.value_or(phase.mean, 0);
    if (is_slow) {
      const bool is_own = line.value_or(phase.most_rank, -1) == static_cast<double>(slowest.rank);
      seconds = is_own ? over_others(line.value_or(phase.most, 0) - seconds) : -1;
    }
    if (seconds <= longest_s && !slowest.phase.empty()) continue;
    slowest.phase = phase.name;
    longest_s = seconds;
  }
  if (!is_slow && least_wait_s > longest_s) slowest.phase = "communication";
  return slowest;
}

}  // namespace trireme::train
