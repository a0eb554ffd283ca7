#pragma once
#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

/// Returns the makespan if the ranks share fewer processors than there are ranks. Ranks with a
/// running action share the processors evenly, at most one processor each. `timing` holds the times
/// on a whole processor. Returns kNever if the schedule deadlocks.
double shared_makespan(const Schedule& schedule, const Timing& timing, double processors);

}  // namespace trireme::pipeline
