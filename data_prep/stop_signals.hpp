#pragma once

namespace trireme::data_prep {

/// Installs handlers for SIGTERM, SIGUSR1 and SIGUSR2, which the scheduler sends before a time
/// limit or a preemption. They ask pack to stop, to be restarted later. Call it before MPI starts:
/// before this call, the signals kill the process.
void catch_stop_signals();

/// Returns the number of received signals. 1: finish the current partition. More: drop it.
int num_stop_signals() noexcept;

}  // namespace trireme::data_prep
