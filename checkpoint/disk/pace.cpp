#include "checkpoint/disk/pace.hpp"

#include <algorithm>

namespace trireme {

void WritePace::spend(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  free_at_ = std::max(free_at_, now);
  wake_.wait_until(lock, free_at_, [&] { return bytes_per_s_ <= 0; });
  if (bytes_per_s_ <= 0) return;
  free_at_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s_));
}

void WritePace::lift() {
  const std::lock_guard lock(mutex_);
  bytes_per_s_ = 0;
  wake_.notify_all();
}

}  // namespace trireme
