#pragma once

namespace trireme {

/// SIGUSR2, SIGTERM and SIGINT ask for a stop at the next step boundary; the handler only sets a
/// flag. A second SIGINT ends the process at once. SIGPIPE is ignored. Call it before MPI starts:
/// until then a signal kills the process.
void install_stop_signals();

/// The number of the signal that asked for a stop; 0: none.
int stop_signal() noexcept;

}  // namespace trireme
