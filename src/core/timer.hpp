#pragma once
#include <chrono>

namespace trireme {

/// Measures seconds on the monotonic clock since construction or the last restart.
class Timer {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Measures the seconds that this process was running, for timeouts. seconds() is called about once
/// a second; a long gap between two calls is not counted. In such a gap the process was suspended
/// (`scontrol suspend`, a paused virtual machine), and so were the processes it waits for.
class RunningTimer {
 public:
  RunningTimer() { restart(); }

  void restart() {
    seconds_ = 0;
    asked_at_s_ = now_s();
  }

  /// Must be called every second or so.
  [[nodiscard]] double seconds() { return seconds_at(now_s()); }

  /// Like seconds(), with the caller's clock; exposed for the test.
  [[nodiscard]] double seconds_at(double now_s) {
    const double gap_s = now_s - asked_at_s_;
    asked_at_s_ = now_s;
    if (gap_s < kLongestGap_s) seconds_ += gap_s;
    return seconds_;
  }

  [[nodiscard]] static double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  static constexpr double kLongestGap_s = 5;

  double seconds_ = 0;
  double asked_at_s_ = 0;
};

/// Returns the time of day in seconds since 1970, rounded to milliseconds for readers. The clock
/// may be set back, so use Timer for durations.
inline double unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milli = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return static_cast<double>(milli) / 1000;
}

}  // namespace trireme
