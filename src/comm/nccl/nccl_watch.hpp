#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/base_communicator.hpp"
#include "comm/nccl/nccl_handles.hpp"
#include "core/timer.hpp"

namespace trireme {

/// Watches the collectives that run on the device, because the host does not wait for them: marks
/// them complete, asks NCCL for asynchronous errors, and ends the process when one exceeds its
/// timeout. One per rank, shared by all its groups; its thread only queries.
class NcclWatch {
 public:
  /// `on_hang` gets the message; default: log it, flush, _exit(5), since a hung
  /// device cannot be waited for.
  NcclWatch(const NcclApi& api, int device, std::function<void(const std::string&)> on_hang = {});
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(ncclComm_t comm, Call call, std::shared_ptr<const CommEvent> done);

  /// Forgets all of this communicator; afterwards the thread does not touch it.
  /// Call before destroying it.
  void remove(ncclComm_t comm);

 private:
  struct Entry {
    ncclComm_t comm;
    Call call;
    std::shared_ptr<const CommEvent> done;
    RunningTimer age;
  };

  void run();
  std::string look();

  const NcclApi& api_;
  const int device_;
  const std::function<void(const std::string&)> on_hang_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool stopping_ = false;
  std::jthread thread_;
};

}  // namespace trireme
