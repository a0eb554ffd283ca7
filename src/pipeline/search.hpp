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

/// The fastest schedule in simulation whose peak is at most `most_under_way` (0: any), the one of
/// least peak among equally fast ones: of all named ones of this shape, and of greedy ones under
/// several rules. Where none keeps the limit, the one of least peak. A pure function: all ranks find
/// the same.
Found search_schedule(const Shape& shape, const Timing& timing, int most_under_way);

/// The same among those whose stages lie so.
Found search_schedule(const Placement& placement, int micro_batches, const Timing& timing,
                      int most_under_way);

}  // namespace trireme::pipeline
