#include "comm/liveness/watchdog_stacks.hpp"

#include <execinfo.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <vector>

#include "comm/liveness/watchdog_symbols.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"

namespace trireme::comm {
namespace {

constexpr double kAnswer_s = 0.25;

/// The signal handler of the asked thread writes its stack here. Only one thread is asked at a
/// time.
struct Answer {
  std::atomic<pid_t> asked{0};
  std::atomic<int> frames{-1};
  std::array<void*, 64> addresses{};
};

Answer g_answer;

int capture_signal() {
  return SIGRTMIN + 6;  // schedulers, MPI and the thread library use no signal this high
}

pid_t this_thread() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void on_capture(int) {
  const int saved = errno;
  if (g_answer.asked.load() == this_thread())
    g_answer.frames.store(
        ::backtrace(g_answer.addresses.data(), static_cast<int>(g_answer.addresses.size())));
  errno = saved;
}

std::vector<void*> ask(pid_t thread) {
  g_answer.frames = -1;
  g_answer.asked = thread;
  if (thread == this_thread()) {
    on_capture(0);
  } else if (::syscall(SYS_tgkill, ::getpid(), thread, capture_signal()) != 0) {
    return {};
  }
  const Timer timer;
  while (g_answer.frames.load() < 0 && timer.seconds() < kAnswer_s)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int count = g_answer.frames.load();
  g_answer.asked = 0;
  if (count < 0) return {};
  return std::vector<void*>(g_answer.addresses.begin(), g_answer.addresses.begin() + count);
}

std::string thread_name(const std::filesystem::path& task) {
  try {
    std::string name = read_file(task / "comm");
    std::erase(name, '\n');
    return name;
  } catch (const Error&) {
    return "?";
  }
}

}  // namespace

void prepare_stacks() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  std::array<void*, 1> first{};
  ::backtrace(first.data(), 1);  // load the unwinder now, because a signal handler must not load it

  struct sigaction action {};

  action.sa_handler = on_capture;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(capture_signal(), &action, nullptr);
}

std::string stacks_of_all_threads() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  prepare_stacks();
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    threads.push_back(static_cast<pid_t>(std::stol(entry.path().filename().string())));
  std::sort(threads.begin(), threads.end());  // the main thread has the lowest number
  const OwnSymbols own;
  std::string text;
  for (const pid_t thread : threads) {
    const auto task = std::filesystem::path("/proc/self/task") / cat(thread);
    const std::vector<void*> frames = ask(thread);
    text += formatted("thread {} {}{}", thread, thread_name(task),
                      thread == ::getpid() ? " (main)" : "");
    text += frames.empty() ? ": no answer (it blocks signals, or has ended)\n" : "\n";
    for (void* frame : frames) text += formatted("  {}\n", describe_frame(frame, own));
  }
  return text;
}

void write_stacks(const std::filesystem::path& file, const std::string& heading) noexcept {
  try {
    std::filesystem::create_directories(file.parent_path());
    append_to_file(file, formatted("== {}\n{}\n", heading, stacks_of_all_threads()));
  } catch (const std::exception& error) {
    log::warn(formatted("cannot write the stacks: {}", error.what()));
  }
}

StackRequests::StackRequests(std::function<void()> on_request)
    : on_request_(std::move(on_request)) {
  prepare_stacks();
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &own, nullptr);  // the thread inherits the mask
  thread_ = std::jthread([this](const std::stop_token& stop) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    while (true) {
      int number = 0;
      if (::sigwait(&wanted, &number) != 0 || stop.stop_requested()) return;
      on_request_();
    }
  });
}

StackRequests::~StackRequests() {
  thread_.request_stop();
  ::pthread_kill(thread_.native_handle(), SIGUSR1);
}

}  // namespace trireme::comm
