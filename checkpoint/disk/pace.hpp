#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace trireme {

/// Limits the write rate of a writer thread, so that training keeps its share of disk and cores.
/// Thread-safe. Uses the steady clock: setting the system clock has no effect.
class WritePace {
 public:
  /// Sets the limit in bytes per second; 0 means no limit.
  explicit WritePace(double bytes_per_s = 0) : bytes_per_s_(bytes_per_s) {}

  /// Blocks until the limit allows `bytes` more.
  void spend(std::uint64_t bytes);

  /// Removes the limit, because a caller now waits for the writer.
  void lift();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  double bytes_per_s_;
  std::chrono::steady_clock::time_point free_at_{};  // earliest time of the next write
};

}  // namespace trireme
