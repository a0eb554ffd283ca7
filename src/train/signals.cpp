#include "train/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace trireme {
namespace {

volatile std::sig_atomic_t requested = 0;

void on_signal(int number) {
  if (number == SIGINT && requested == SIGINT) ::_exit(128 + SIGINT);
  requested = number;
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};

  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGUSR2, SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int stop_signal() noexcept {
  return requested;
}

}  // namespace trireme
