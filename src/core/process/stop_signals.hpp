#pragma once
#include <exception>
#include <string>

namespace trireme {

/// Installs the stop request handler for SIGUSR2, SIGTERM, SIGINT and SIGHUP (unless SIGHUP is
/// ignored, as under nohup). The handler sets a flag and prints once on stderr what will happen. If
/// a launcher signals all ranks, only rank 0 prints. A second SIGINT ends the process at once with
/// 130. SIGPIPE is ignored. SIGUSR1 is blocked here and in all later threads, because StackRequests
/// handles it.
///
/// Call it before anything slow: until then a signal kills the process. `rank` is the launcher's
/// rank of this process, null without a launcher. Safe before main(); a second call has no effect.
void install_stop_signals(const char* rank) noexcept;

/// Installs the same handler for programs that report a stop themselves: the flag is set, and only
/// a second SIGINT is reported here.
void watch_stop_signals() noexcept;

/// Returns the number of the signal that requested a stop; 0 if there is none.
int stop_signal() noexcept;

/// Makes the handler's message say, from now on, that a stop saves first.
void stop_saves_first() noexcept;

/// Returns "SIGTERM", or "signal 40" if the signal has no name.
std::string signal_name(int number);

/// Thrown if a stop was requested before the work began; ends the program with kExitStopped.
class StoppedEarly : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "stopped on request"; }
};

/// Throws StoppedEarly if a stop was requested. Long preparations call it between their parts. Does
/// nothing in programs that did not call install_stop_signals().
void throw_if_stop_requested();

}  // namespace trireme
