#pragma once
#include <cstddef>
#include <memory>

namespace trireme {

/// Memory at a page boundary, in huge pages where there are some, as reads and writes past the page
/// cache want it. Not initialised.
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

}  // namespace trireme
