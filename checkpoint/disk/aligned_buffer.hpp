#pragma once
#include <cstddef>
#include <memory>

namespace trireme::checkpoint {

/// Page-aligned memory, in huge pages if available, for reads and writes past the page cache
/// (O_DIRECT). The memory is not initialized.
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };

  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace trireme::checkpoint
