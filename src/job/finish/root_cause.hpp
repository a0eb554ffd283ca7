#pragma once
#include "job/leg.hpp"

namespace trireme {

/// Of a leg that failed: the rank that went wrong, from what the ranks left. An error that one threw
/// comes before all else, then who stood still, then who was missed by the others; who only heard of
/// it is never the cause. `srun_code`: of the launcher, for a leg that left no word.
RootCause root_cause_of(const Leg& leg, int srun_code);

}  // namespace trireme
