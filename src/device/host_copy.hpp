#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>

namespace trireme::device {

/// A copy of a small tensor in host memory. On a GPU, the copy is enqueued on the current stream,
/// into pinned memory, and the host continues. On a CPU, it shares the memory of the tensor, which
/// must not change afterwards.
class HostCopy {
 public:
  /// Holds no tensor.
  HostCopy() = default;
  explicit HostCopy(const at::Tensor& values);

  /// Waits for the copy, but not for later work of the device, and returns the values: a contiguous
  /// CPU tensor.
  [[nodiscard]] const at::Tensor& read() const;

 private:
  at::Tensor host_;
  std::shared_ptr<c10::Event> copied_;  // shared by copies of this object; null on a CPU
};

}  // namespace trireme::device
