#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace trireme {

/// How fast a writer thread may write, so that training beside it keeps its disk and its cores.
/// Thread-safe. Time is that of the steady clock: setting the clock back changes nothing.
class WritePace {
 public:
  /// Bytes per second; 0: no limit.
  explicit WritePace(double bytes_per_s = 0) : bytes_per_s_(bytes_per_s) {}

  /// Blocks until `bytes` more may be written.
  void spend(std::uint64_t bytes);

  /// No limit from now on: somebody waits for the writer.
  void lift();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  double bytes_per_s_;
  std::chrono::steady_clock::time_point free_at_{};  // when what was spent is paid for
};

}  // namespace trireme
