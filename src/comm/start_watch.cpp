#include "comm/start_watch.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "comm/session.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// The other ranks wait this long before they exit, because the launcher kills all ranks after the
/// first exit, and the report must be complete by then.
constexpr std::chrono::seconds kGrace{2};
constexpr double kMostBetweenSigns_s = 10;

std::string own_node() {
  const char* node = std::getenv(scheduler::scheduler().variables().node);
  return node == nullptr ? this_hostname() : node;
}

/// Blocks all signals, so that a new thread does not receive signals for the main thread.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }

  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

class StartWatch::Thread {
 public:
  Thread(const StartLimit& limit, const LauncherVariables& variables)
      : limit_(limit),
        place_(launcher_rank(variables)),
        node_(own_node()),
        interval_s_(std::min(limit.timeout_s / 10, kMostBetweenSigns_s)),
        end_(Clock::now() + seconds(limit.timeout_s)),
        marks_(limit.marks, variables, place_.rank) {
    const BlockedSignals blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  void stop() {
    thread_.request_stop();
    thread_.join();
    marks_.remove();
  }

 private:
  static Clock::duration seconds(double number) {
    constexpr double kYear_s = 3e7;
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::clamp(number, 0.0, kYear_s)));
  }

  void run(const std::stop_token& stop) {
    has_marks_ = marks_.put(node_, static_cast<int>(::getpid()));
    std::mutex mutex;
    std::condition_variable_any woken;
    std::unique_lock lock(mutex);
    while (Clock::now() < end_) {
      const auto next = std::min(end_, Clock::now() + seconds(interval_s_));
      if (woken.wait_until(lock, stop, next, [&stop] { return stop.stop_requested(); })) return;
      if (has_marks_) marks_.refresh();
    }
    fail_start();
  }

  [[noreturn]] void fail_start() {
    if (!has_marks_ || marks_.claim_report()) {
      StartView view{place_.rank, place_.size, node_, limit_.timeout_s, 3 * interval_s_, {}, {}};
      if (has_marks_) view.marks = marks_.read();
      view.nodes = scheduler::scheduler().step_nodes();
      const StartFailure failure = report_start(view);
      log::error(failure.message);
      log::flush();
      if (limit_.on_failure) limit_.on_failure(failure);
    }
    std::this_thread::sleep_for(kGrace);
    log::flush();
    ::_exit(exit_code(ErrorKind::comm));
  }

  const StartLimit limit_;
  const LauncherRank place_;
  const std::string node_;
  const double interval_s_;
  const Clock::time_point end_;
  StartMarks marks_;
  bool has_marks_ = false;  // used by the thread only
  std::jthread thread_;     // last member, so that the thread ends before the others
};

StartWatch::StartWatch(const StartLimit& limit, const LauncherVariables& variables)
    : thread_(std::make_unique<Thread>(limit, variables)) {}

StartWatch::~StartWatch() {
  thread_->stop();
}

}  // namespace trireme::comm
