#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "model/kv_cache.hpp"

namespace trireme {

/// Puts memory under blocks of a cache on the host before texts reach them. The blocks of every layer and
/// head come to a new huge page in the same step, which would then wait while the kernel clears them all
/// (128 MiB of minimind-3: a quarter of a second). A thread of its own, with a pause after
/// each head.
class KvPages {
 public:
  /// Blocks ahead of the highest that was taken.
  static constexpr std::int64_t kAhead = 256;

  explicit KvPages(const KvCache& cache);

  /// Blocks [0, reached) have been taken.
  void reach(std::int64_t reached);
  /// Blocks with memory under them, so far.
  [[nodiscard]] std::int64_t done() const;

 private:
  void run(const std::stop_token& stop);
  void pause(const std::stop_token& stop);

  const KvCache& cache_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::int64_t wanted_ = 0;
  std::int64_t done_ = 0;
  std::jthread thread_;  // the last: it ends first
};

}  // namespace trireme
