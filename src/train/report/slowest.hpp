#pragma once
#include <string>

#include "train/report/sinks.hpp"

namespace trireme::train {

/// The rank that the other ranks wait for, and the reason.
struct SlowestRank {
  std::int64_t rank = 0;
  std::string phase;    // "compute", "communication", "data" or "other"
  double excess_s = 0;  // the time per step that the other ranks wait longer than this rank
};

/// Finds the slowest rank from the measures of a step: the rank that waited least for others. Its
/// phase is the one that takes it longer than the mean of the other ranks. If the other ranks wait
/// less than 2 % of the step for it, no rank is slow, and the phase is the longest one of the step.
SlowestRank slowest_of(const MetricsLine& line, std::int64_t num_ranks);

}  // namespace trireme::train
