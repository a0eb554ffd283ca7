#pragma once
#include <array>
#include <cstdint>

namespace trireme::generate {

/// Finds the fastest number of CPU threads for steps of a model by their measured times. For a tiny
/// model, threads cost more than they save. If another process uses a core, the thread on that core
/// makes all others wait, and fewer threads are faster.
///
/// Steps of about the same number of rows have a number of threads of their own. From time to time,
/// some steps run with more or fewer threads. If they are clearly faster, the number stays.
/// Otherwise, the next trial comes later. No LibTorch, and no clock: the caller measures.
class ThreadChoice {
 public:
  /// `most`: largest number of threads, at least 1.
  explicit ThreadChoice(int most);

  [[nodiscard]] int most() const { return most_; }

  /// Returns the number of threads for the next step of `rows` rows, from 1 to `most`.
  [[nodiscard]] int threads(std::int64_t rows) const;

  /// Records the time of a step that ran with threads(rows).
  void took(std::int64_t rows, double seconds);

 private:
  /// Steps of a number of rows between two powers of two.
  struct Steps {
    int threads = 0;     // without a trial
    int trial = 0;       // number of threads of the current trial; 0: none
    int direction = -1;  // the next trial has more (1) or fewer (-1) threads
    std::int64_t rows = 0;
    int count = 0;  // steps of the current window, all of the same number of rows
    double total_s = 0;
    double best_s = 0;  // shortest mean time with `threads`; 0: unknown
    double base_s = 0;  // mean time before the trial
    int windows = 0;    // since the last trial
    int wait = 0;       // windows before the next trial
  };

  [[nodiscard]] static std::size_t index_of(std::int64_t rows);
  void end_window(Steps& steps, double mean_s) const;
  void begin_trial(Steps& steps, double mean_s) const;
  static void end_trial(Steps& steps, double mean_s);

  int most_;
  std::array<Steps, 65> steps_;
};

/// Sets the number of OpenMP threads of the calling thread during a scope.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads);
  ~ScopedThreads();
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_ = 0;
};

}  // namespace trireme::generate
