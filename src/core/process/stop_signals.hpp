#pragma once
#include <exception>
#include <string>

namespace trireme {

/// SIGUSR2, SIGTERM, SIGINT and SIGHUP (unless it is ignored already, as under nohup) ask for a
/// stop; the handler sets a flag and says on stderr what will happen, once. Of the ranks that a
/// launcher signals together, rank 0 alone speaks. A second SIGINT ends the process at once with
/// 130. SIGPIPE is ignored. SIGUSR1 is blocked here and in all threads to come: StackRequests
/// answers it. Call it before anything slow: until then a signal kills the process. `rank`: the
/// launcher's number of this process, null without one. Safe before main; a second call does nothing new.
void install_stop_signals(const char* rank) noexcept;

/// For programs that end by themselves when they are asked to, and say so: the same signals set the
/// same flag, and nothing is said here but of a second SIGINT.
void watch_stop_signals() noexcept;

/// The number of the signal that asked for a stop; 0: none.
int stop_signal() noexcept;

/// From now on a stop saves first: what the answer to a signal says.
void stop_saves_first() noexcept;

/// "SIGTERM"; "signal 40" for one without a name of its own here.
std::string signal_name(int number);

/// A stop was asked for before the work began: end with kExitStopped and leave all as it was.
class StoppedEarly : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "stopped on request"; }
};

/// For long preparations, between two pieces of them: throws StoppedEarly if a stop was asked for.
/// Does nothing in programs that did not call install_stop_signals.
void leave_if_stop_asked();

}  // namespace trireme
