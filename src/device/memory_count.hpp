#pragma once
#include <cstdint>
#include <memory>

namespace trireme {

/// Counts the bytes of tensors that this thread, and backward passes that it starts, allocate while
/// it lives; CPU and CUDA together.
///
/// Memory of before, and its end, is not counted; what another thread frees stays counted. On a GPU
/// an allocation is a block of LibTorch's cache (a multiple of 512 bytes). Counts may be nested:
/// each sees all.
class MemoryCount {
 public:
  MemoryCount();
  MemoryCount(const MemoryCount&) = delete;
  MemoryCount& operator=(const MemoryCount&) = delete;
  ~MemoryCount();  // on the thread that made it, last made first

  /// Allocated and not yet freed.
  [[nodiscard]] std::int64_t live_bytes() const;
  /// The most at any time since the start or reset_peak().
  [[nodiscard]] std::int64_t peak_bytes() const;
  /// The peak begins again at what lives now.
  void reset_peak();

 private:
  class Reporter;
  struct Installed;
  std::unique_ptr<Installed> installed_;
};

}  // namespace trireme
