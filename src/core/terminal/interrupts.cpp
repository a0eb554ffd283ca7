#include "core/terminal/interrupts.hpp"

namespace trireme {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

CatchInterrupts::CatchInterrupts() {
  interrupted = 0;

  struct sigaction now {};

  now.sa_handler = [](int) { interrupted = 1; };
  sigemptyset(&now.sa_mask);
  sigaction(SIGINT, &now, &before_);  // without SA_RESTART
}

CatchInterrupts::~CatchInterrupts() {
  sigaction(SIGINT, &before_, nullptr);
}

bool CatchInterrupts::take() noexcept {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

}  // namespace trireme
