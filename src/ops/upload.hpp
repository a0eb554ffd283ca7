#pragma once
#include <ATen/core/Tensor.h>

namespace trireme::ops {

/// Copies host values to `device` without waiting for the device: on a GPU from pinned memory, in
/// the order of the current stream. Returns `host` itself for a CPU.
inline at::Tensor upload(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  return (device.is_cuda() ? host.pin_memory() : host).to(device, /*non_blocking=*/true);
}

/// Like upload(), but on a stream of its own: the copy runs beside the work that the device has,
/// and only later operations of the current stream wait for it. Not for the capture of a CUDA
/// graph.
at::Tensor upload_beside(const at::Tensor& host, at::Device device);

}  // namespace trireme::ops
