#include "device/memory_count.hpp"

#include <c10/core/Allocator.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace trireme::device {
namespace {

// the slot in which allocators look for a listener
constexpr auto kSlot = c10::DebugInfoKind::PROFILER_STATE;

c10::MemoryReportingInfoBase* current_listener() {
  return dynamic_cast<c10::MemoryReportingInfoBase*>(c10::ThreadLocalDebugInfo::get(kSlot));
}

}  // namespace

/// The listener of the allocators. It has a lock, because GPU backward runs on other threads.
class MemoryCount::Reporter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* pointer, std::int64_t size, std::size_t total_allocated,
                         std::size_t total_reserved, c10::Device device) override {
    if (outer_ != nullptr && outer_->memoryProfilingEnabled())
      outer_->reportMemoryUsage(pointer, size, total_allocated, total_reserved, device);
    const std::lock_guard lock(mutex_);
    // If an address appears again, its earlier memory was freed on another thread.
    if (const auto known = sizes_.find(pointer); known != sizes_.end()) {
      live_ -= known->second;
      sizes_.erase(known);
    }
    if (size <= 0) return;
    sizes_.emplace(pointer, size);
    live_ += size;
    peak_ = std::max(peak_, live_);
  }

  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  [[nodiscard]] std::int64_t live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  [[nodiscard]] std::int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = live_;
  }

 private:
  c10::MemoryReportingInfoBase* outer_ = current_listener();
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> sizes_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

struct MemoryCount::Installed {
  /// Limits LibTorch's log to errors during its lifetime. LibTorch's CPU allocator otherwise warns
  /// about each free of memory that is older than the count.
  class ErrorsOnly {
   public:
    ErrorsOnly() {
      const std::lock_guard lock(mutex_);
      if (living_++ > 0) return;
      before_ = FLAGS_caffe2_log_level;
      FLAGS_caffe2_log_level = std::max(before_, static_cast<int>(c10::GLOG_ERROR));
    }

    ErrorsOnly(const ErrorsOnly&) = delete;
    ErrorsOnly& operator=(const ErrorsOnly&) = delete;

    ~ErrorsOnly() {
      const std::lock_guard lock(mutex_);
      if (--living_ == 0) FLAGS_caffe2_log_level = before_;
    }

   private:
    inline static std::mutex mutex_;
    inline static int living_ = 0;
    inline static int before_ = 0;
  };

  ErrorsOnly quiet;
  std::shared_ptr<Reporter> reporter = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard{kSlot, reporter};
};

MemoryCount::MemoryCount() : installed_(std::make_unique<Installed>()) {}

MemoryCount::~MemoryCount() = default;

std::int64_t MemoryCount::live_bytes() const {
  return installed_->reporter->live();
}

std::int64_t MemoryCount::peak_bytes() const {
  return installed_->reporter->peak();
}

void MemoryCount::reset_peak() {
  installed_->reporter->reset_peak();
}

}  // namespace trireme::device
