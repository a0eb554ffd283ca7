#pragma once
#include <chrono>

namespace trireme {

/// Seconds on the monotonic clock since construction or the last restart.
class Timer {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Seconds that this process ran, for limits of waiting: asked again and again, it leaves out what
/// lies between two questions far apart. Then the process stood still (`scontrol suspend`, a stopped
/// virtual machine) and so did those it waits for.
class RunningTimer {
 public:
  RunningTimer() { restart(); }

  void restart() {
    seconds_ = 0;
    asked_at_s_ = now_s();
  }

  /// To be asked every second or so.
  [[nodiscard]] double seconds() { return seconds_at(now_s()); }

  /// The same with a clock of the caller's; exposed for its test.
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

/// Of the day, to the millisecond, which is what a reader can use. It may be set back: durations are
/// a Timer's.
inline double unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milli = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return static_cast<double>(milli) / 1000;
}

}  // namespace trireme
