#include "generate/thread_choice.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <bit>

namespace trireme::generate {
namespace {

// A window is long enough to contain several time slices of another process.
constexpr int kWindowSteps = 8;
constexpr double kWindowSeconds = 0.02;
// A trial is successful below this share of the time before it.
constexpr double kFaster = 0.93;
// Above this multiple of the best time, something else uses the cores.
constexpr double kSlower = 1.3;
constexpr int kFirstWait = 8;
constexpr int kMostWait = 256;

}  // namespace

ThreadChoice::ThreadChoice(int most) : most_(std::max(most, 1)) {
  for (Steps& steps : steps_) {
    steps.threads = most_;
    steps.wait = kFirstWait;
  }
}

std::size_t ThreadChoice::index_of(std::int64_t rows) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(rows)));
}

int ThreadChoice::threads(std::int64_t rows) const {
  const Steps& steps = steps_.at(index_of(rows));
  return steps.trial > 0 ? steps.trial : steps.threads;
}

void ThreadChoice::took(std::int64_t rows, double seconds) {
  if (most_ == 1) return;
  Steps& steps = steps_.at(index_of(rows));
  if (rows != steps.rows) {  // times of other steps cannot be compared
    steps.rows = rows;
    steps.count = steps.trial = 0;
    steps.total_s = steps.best_s = 0;
  }
  steps.total_s += seconds;
  if (++steps.count < kWindowSteps || steps.total_s < kWindowSeconds) return;
  const double mean_s = steps.total_s / steps.count;
  steps.count = 0;
  steps.total_s = 0;
  if (steps.trial > 0) {
    end_trial(steps, mean_s);
  } else {
    end_window(steps, mean_s);
  }
}

void ThreadChoice::end_window(Steps& steps, double mean_s) const {
  const bool slower = steps.best_s > 0 && mean_s > kSlower * steps.best_s;
  steps.best_s = steps.best_s > 0 ? std::min(steps.best_s, mean_s) : mean_s;
  if (++steps.windows >= steps.wait || slower) begin_trial(steps, mean_s);
}

void ThreadChoice::begin_trial(Steps& steps, double mean_s) const {
  if (steps.threads == 1) steps.direction = 1;
  if (steps.threads == most_) steps.direction = -1;
  constexpr int kShare = 8;  // many threads: an eighth of them at a time
  const int change = std::max(steps.threads / kShare, 1);
  steps.trial = std::clamp(steps.threads + steps.direction * change, 1, most_);
  steps.base_s = mean_s;
  steps.windows = 0;
}

void ThreadChoice::end_trial(Steps& steps, double mean_s) {
  if (mean_s < kFaster * steps.base_s) {  // the next trial goes in this direction, and soon
    steps.threads = steps.trial;
    steps.best_s = mean_s;
    steps.wait = 1;
  } else {
    steps.best_s = steps.base_s;  // the steps may be slower for good, as after a long context
    steps.direction = -steps.direction;
    steps.wait = std::clamp(2 * steps.wait, kFirstWait, kMostWait);
  }
  steps.trial = 0;
}

#ifdef _OPENMP
ScopedThreads::ScopedThreads(int threads) {
  if (threads == omp_get_max_threads()) return;
  before_ = omp_get_max_threads();
  omp_set_num_threads(threads);
}

ScopedThreads::~ScopedThreads() {
  if (before_ > 0) omp_set_num_threads(before_);
}
#else
ScopedThreads::ScopedThreads(int /*threads*/) {}

ScopedThreads::~ScopedThreads() = default;
#endif

}  // namespace trireme::generate
