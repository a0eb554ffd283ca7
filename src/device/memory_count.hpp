#pragma once
#include <cstdint>
#include <memory>

namespace trireme::device {

/// Counts the bytes of tensors that this thread, and backward passes that it starts, allocate
/// during the lifetime of the object; CPU and CUDA together.
///
/// Memory from before the count, and its release, is not counted. Memory that another thread frees
/// stays counted. On a GPU an allocation is a block of LibTorch's cache (a multiple of 512 bytes).
/// Counts may be nested; each one counts everything.
class MemoryCount {
 public:
  MemoryCount();
  MemoryCount(const MemoryCount&) = delete;
  MemoryCount& operator=(const MemoryCount&) = delete;
  ~MemoryCount();  // on the thread of the constructor, in reverse order of construction

  /// Returns the bytes allocated and not yet freed.
  [[nodiscard]] std::int64_t live_bytes() const;
  /// Returns the maximum of live_bytes() since construction or reset_peak().
  [[nodiscard]] std::int64_t peak_bytes() const;
  /// Resets the peak to live_bytes().
  void reset_peak();

 private:
  class Reporter;
  struct Installed;
  std::unique_ptr<Installed> installed_;
};

}  // namespace trireme::device
