#pragma once
#include <string>

namespace trireme {

/// SIGUSR2, SIGTERM, SIGINT and SIGHUP (unless it is ignored already, as under nohup) ask for a
/// stop at the next step boundary; the handler only sets a flag. A second SIGINT ends the process
/// at once. SIGPIPE is ignored. SIGUSR1 is blocked here and in all threads to come: StackRequests
/// answers it. Call it before MPI starts: until then a signal kills the process.
void install_stop_signals();

/// The number of the signal that asked for a stop; 0: none.
int stop_signal() noexcept;

/// "SIGTERM"; "signal 40" for one without a name of its own here.
std::string signal_name(int number);

}  // namespace trireme
