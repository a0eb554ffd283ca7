#pragma once
#include <csignal>

namespace trireme {

/// Makes Ctrl-C (SIGINT) a flag during its lifetime instead of ending the program. Only one may
/// exist at a time. Blocking system calls return with EINTR.
class CatchInterrupts {
 public:
  CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;
  /// Restores the earlier handler of Ctrl-C.
  ~CatchInterrupts();

  /// Returns true if Ctrl-C was pressed since the last call.
  static bool take() noexcept;

 private:
  struct sigaction before_ {};
};

}  // namespace trireme
