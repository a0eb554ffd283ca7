#pragma once
#include "job/leg.hpp"

namespace trireme {

/// Returns the rank that caused the failure of an attempt, from the failure reports of its ranks.
/// The order of priority is: a rank that threw an error, a rank that hung, a rank that its peers
/// lost. A rank that only lost a peer is never the cause. `srun_code` is the exit code of the
/// launcher, for an attempt without failure reports.
RootCause root_cause_of(const Leg& leg, int srun_code);

}  // namespace trireme
