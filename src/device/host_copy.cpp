#include "device/host_copy.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace trireme::device {

HostCopy::HostCopy(const at::Tensor& values) {
  const at::Device device = values.device();
  if (device.is_cpu()) {
    host_ = values.contiguous();
    return;
  }
  host_ =
      at::empty(values.sizes(),
                at::TensorOptions().dtype(values.scalar_type()).pinned_memory(device.is_cuda()));
  host_.copy_(values, /*non_blocking=*/true);
  copied_ = std::make_shared<c10::Event>(device.type());
  copied_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

const at::Tensor& HostCopy::read() const {
  if (copied_) copied_->synchronize();
  return host_;
}

}  // namespace trireme::device
