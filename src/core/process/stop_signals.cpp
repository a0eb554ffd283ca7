#include "core/process/stop_signals.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "core/error.hpp"

namespace trireme {
namespace {

// All data of the handler, constant-initialized, because it may run before main().
volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t num_interrupts = 0;
volatile std::sig_atomic_t saves_first = 0;
constinit std::array<char, 16> rank_text{};  // the launcher's rank; empty without a launcher
constinit bool answers_for_all = true;
constinit bool on_terminal = false;
constinit bool announces = true;  // the handler prints what the first signal will do

/// Builds text without the heap, for a signal handler.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && length_ < text_.size()) text_[length_++] = *text++;
    return *this;
  }

  void print() const {
    [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text_.data(), length_);
  }

 private:
  std::array<char, 256> text_{};
  std::size_t length_ = 0;
};

void say(int number, const char* what) {
  const char* name = ::sigabbrev_np(number);
  Line line;
  line << (on_terminal ? "\n" : "") << "trireme: ";
  if (rank_text[0] != '\0') line << "[rank " << rank_text.data() << "] ";
  line << "SIG" << (name == nullptr ? "?" : name) << ": " << what << "\n";
  line.print();
}

void on_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  // The launcher, which is the parent process, signals all its ranks, so one answer is enough. If
  // another process signals this rank alone, this rank answers.
  const bool mine_alone = info != nullptr && info->si_pid > 0 && info->si_pid != ::getppid();
  const bool answers = answers_for_all || mine_alone;
  if (number == SIGINT) num_interrupts = num_interrupts + 1;
  if (number == SIGINT && num_interrupts > 1) {
    if (answers) say(number, "second SIGINT: ends at once with 130");
    ::_exit(128 + SIGINT);
  }
  if (requested == 0 && answers && announces) {
    say(number, saves_first != 0
                    ? "will save and end with 75 after the current micro-batch; SIGINT "
                      "twice ends at once"
                    : "will end with 75 before the first step; SIGINT twice ends at once");
  }
  requested = number;
  errno = error;
}

bool is_ignored(int number) {
  struct sigaction now {};

  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

/// Installs the handler, and ignores SIGPIPE so that writers see the error.
void set_handler() noexcept {
  on_terminal = ::isatty(STDERR_FILENO) == 1;

  struct sigaction action {};

  action.sa_sigaction = on_signal;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGUSR2, SIGTERM, SIGINT, SIGHUP}) sigaddset(&action.sa_mask, number);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (const int number : {SIGUSR2, SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

void install_stop_signals(const char* rank) noexcept {
  if (rank != nullptr) {
    std::strncpy(rank_text.data(), rank, rank_text.size() - 1);
    answers_for_all = std::string_view(rank) == "0";
  }
  set_handler();
  sigset_t stacks;
  sigemptyset(&stacks);
  sigaddset(&stacks, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &stacks, nullptr);
}

void watch_stop_signals() noexcept {
  announces = false;
  set_handler();
}

int stop_signal() noexcept {
  return requested;
}

void stop_saves_first() noexcept {
  saves_first = 1;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? formatted("signal {}", number) : formatted("SIG{}", name);
}

void throw_if_stop_requested() {
  if (requested != 0) throw StoppedEarly();
}

}  // namespace trireme
