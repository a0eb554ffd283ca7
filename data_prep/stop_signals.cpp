#include "data_prep/stop_signals.hpp"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace trireme::data_prep {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free,
              "the handler may only touch lock-free atomics");

void on_signal(int) {
  received.fetch_add(1);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};

  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2}) sigaction(number, &action, nullptr);
}

int num_stop_signals() noexcept {
  return received.load();
}

}  // namespace trireme::data_prep
