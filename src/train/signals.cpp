#include "train/signals.hpp"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

#include "core/error.hpp"

namespace trireme {
namespace {

volatile std::sig_atomic_t requested = 0;

void on_signal(int number) {
  if (number == SIGINT && requested == SIGINT) ::_exit(128 + SIGINT);
  requested = number;
}

bool is_ignored(int number) {
  struct sigaction now {};

  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};

  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGUSR2, SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t stacks;
  sigemptyset(&stacks);
  sigaddset(&stacks, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &stacks, nullptr);
}

int stop_signal() noexcept {
  return requested;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? cat("signal ", number) : cat("SIG", name);
}

}  // namespace trireme
