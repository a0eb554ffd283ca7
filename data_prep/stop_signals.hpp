#pragma once

namespace trireme {

/// From here on SIGTERM, SIGUSR1 and SIGUSR2 (the scheduler sends them before a time limit or
/// a preemption) ask pack to stop and to be started again. Call it before MPI starts:
/// until then they kill the process.
void catch_stop_signals();

/// How many such signals came. One: finish the partition in hand. More: drop it.
int num_stop_signals() noexcept;

}  // namespace trireme
