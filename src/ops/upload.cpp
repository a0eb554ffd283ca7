#include "ops/upload.hpp"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace trireme::ops {
namespace {

/// Returns the stream of the copies to `device`, one per process and device.
c10::Stream copy_stream(at::Device device) {
  static std::mutex mutex;
  static std::vector<c10::Stream> streams;
  const std::scoped_lock lock(mutex);
  const auto found = std::ranges::find(streams, device, &c10::Stream::device);
  if (found != streams.end()) return *found;
  return streams.emplace_back(
      c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
}

}  // namespace

at::Tensor upload_beside(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  const c10::Stream reader = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const c10::Stream copies = copy_stream(device);
  at::Tensor result;
  {
    const c10::StreamGuard on_copies(copies);
    result = upload(host, device);
  }
  c10::Event copied(device.type());
  copied.record(copies);
  copied.block(reader);
  // The memory belongs to the stream of the copies, so its next copy must not reuse the memory
  // before the reader is done.
  result.record_stream(reader);
  return result;
}

}  // namespace trireme::ops
