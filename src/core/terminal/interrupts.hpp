#pragma once
#include <csignal>

namespace trireme {

/// While one lives, Ctrl-C (SIGINT) is a question that the program answers, not its end. One at a
/// time. System calls that wait return with EINTR.
class CatchInterrupts {
 public:
  CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;
  /// What Ctrl-C did before.
  ~CatchInterrupts();

  /// Whether it was pressed since the last call.
  static bool take() noexcept;

 private:
  struct sigaction before_ {};
};

}  // namespace trireme
