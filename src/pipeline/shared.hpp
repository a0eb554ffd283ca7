#pragma once
#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

/// Makespan where ranks compute on fewer processors than there are ranks, which divide them evenly
/// among those that have a pass to run; none has more than one. `timing` is of a pass that has a
/// whole processor. kNever of a schedule that gets stuck.
double shared_makespan(const Schedule& schedule, const Timing& timing, double processors);

}  // namespace trireme::pipeline
