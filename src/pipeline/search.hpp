#pragma once
#include <string>

#include "pipeline/named.hpp"
#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

struct Found {
  Schedule schedule;
  Simulation simulation;
  std::string origin;  // "zb-h1", "greedy"
};

/// Returns the schedule with the shortest simulated time among those with a peak of at most
/// `max_in_flight` (0: no limit). Equal times are decided by the lower peak. Candidates are all
/// named schedules of this shape and greedy schedules with several rules. If no candidate keeps the
/// limit, the one closest to it wins. The result depends on the arguments only, so all ranks find
/// the same schedule.
Found search_schedule(const Shape& shape, const Timing& timing, int max_in_flight);

/// Like the overload above, for a given placement.
Found search_schedule(const Placement& placement, int micro_batches, const Timing& timing,
                      int max_in_flight);

}  // namespace trireme::pipeline
