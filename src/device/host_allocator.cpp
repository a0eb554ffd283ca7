#include "device/host_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>

namespace trireme::device {
namespace {

constexpr std::size_t kAlignment = 64;

/// The address from malloc is stored before the memory of the tensor. There is room for it, because
/// malloc aligns to at least its size.
void*& block_of(void* memory) {
  return *(static_cast<void**>(memory) - 1);
}

void release(void* memory) {
  if (memory == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(memory);
  std::free(block_of(memory));
}

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    const bool fits = bytes <= std::numeric_limits<std::size_t>::max() - kAlignment;
    void* const block = fits ? std::malloc(bytes + kAlignment) : nullptr;
    if (block == nullptr) c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "cannot allocate memory: ", bytes,
                     " bytes");
    const std::size_t over = reinterpret_cast<std::uintptr_t>(block) % kAlignment;
    void* const memory = static_cast<std::byte*>(block) + kAlignment - over;
    block_of(memory) = block;
    c10::profiledCPUMemoryReporter().New(memory, bytes);
    return {memory, memory, &release, device};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void use_host_allocator() {
  static std::once_flag is_set;
  // LibTorch owns the allocator, because tensors may outlive all statics.
  std::call_once(is_set, [] { c10::SetCPUAllocator(new HostAllocator()); });
}

}  // namespace trireme::device
