#pragma once
#include <memory>
#include <string>

#include "comm/nccl/nccl_api.hpp"
#include "core/error.hpp"

/// CUDA handles that are destroyed automatically. UniqueHandle cannot be used, because destroying a
/// handle needs the function table.
namespace trireme::comm {

inline void check_nccl(const NcclApi& api, ncclResult_t code, const std::string& what) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  fail(ErrorKind::comm, "{}: {} (set NCCL_DEBUG=WARN for details)", what,
       api.get_error_string(code));
}

inline void check_cuda(const NcclApi& api, cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return;
  fail(ErrorKind::resource, "{}: {}", what, api.cuda_error_string(code));
}

/// A stream of the highest priority, so that collectives do not wait behind matrix products.
class CommStream {
 public:
  explicit CommStream(const NcclApi& api) : api_(api) {
    int least = 0;
    int greatest = 0;
    check_cuda(api_, api_.stream_priority_range(&least, &greatest), "stream priorities");
    check_cuda(api_, api_.stream_create(&stream_, cudaStreamNonBlocking, greatest),
               "communication stream");
  }

  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  ~CommStream() { api_.stream_destroy(stream_); }

  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  const NcclApi& api_;
  cudaStream_t stream_ = nullptr;
};

/// An event without a time, which is cheaper than one with a time.
class CommEvent {
 public:
  explicit CommEvent(const NcclApi& api) : api_(api) {
    check_cuda(api_, api_.event_create(&event_, cudaEventDisableTiming), "event");
  }

  CommEvent(const CommEvent&) = delete;
  CommEvent& operator=(const CommEvent&) = delete;

  ~CommEvent() { api_.event_destroy(event_); }

  [[nodiscard]] cudaEvent_t get() const { return event_; }

  void record(cudaStream_t stream, const std::string& what) const {
    check_cuda(api_, api_.event_record(event_, stream), what);
  }

  /// Returns true if everything before the record is done; Error(resource) on a device error.
  [[nodiscard]] bool reached() const {
    const cudaError_t code = api_.event_query(event_);
    if (code == cudaErrorNotReady) return false;
    check_cuda(api_, code, "a collective on the device");
    return true;
  }

 private:
  const NcclApi& api_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace trireme::comm
