#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "model/kv_cache.hpp"

namespace trireme::generate {

/// Makes the host memory of KV blocks resident before sequences use these blocks. A separate thread
/// does this work and pauses after each head. Without this class, all layers and heads would use a
/// new huge page for the first time in the same step. This step would wait while the Linux kernel
/// clears the pages (minimind-3: 128 MiB, a quarter of a second).
class KvPages {
 public:
  /// Number of blocks to prepare beyond the highest block in use.
  static constexpr std::int64_t kAhead = 256;

  explicit KvPages(const model::KvCache& cache);

  /// Tells the thread that blocks [0, reached) are in use.
  void reach(std::int64_t reached);
  /// Returns the number of blocks with resident memory.
  [[nodiscard]] std::int64_t done() const;

 private:
  void run(const std::stop_token& stop);
  void pause(const std::stop_token& stop);

  const model::KvCache& cache_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::int64_t wanted_ = 0;
  std::int64_t done_ = 0;
  std::jthread thread_;  // declared last, so that it ends before the other members
};

}  // namespace trireme::generate
