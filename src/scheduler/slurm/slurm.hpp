#pragma once
#include "scheduler/scheduler.hpp"

namespace trireme::scheduler {

/// Returns Slurm. Safe before main.
const Scheduler& slurm() noexcept;

}  // namespace trireme::scheduler
