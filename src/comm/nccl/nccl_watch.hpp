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

namespace trireme::comm {

/// Watches the collectives on the device, because the host does not wait for them. It marks them
/// complete, asks NCCL for asynchronous errors, and ends the process if a collective exceeds its
/// timeout. Each rank has one NcclWatch for all its groups. Its thread only queries the device and
/// never waits for it.
class NcclWatch {
 public:
  /// `on_hang` receives the message. The default logs it, flushes and calls _exit(5), because it is
  /// not possible to wait for a hung device.
  NcclWatch(const NcclApi& api, int device, std::function<void(const std::string&)> on_hang = {});
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(ncclComm_t comm, Call call, std::shared_ptr<const CommEvent> done);

  /// Removes all entries of this communicator; the thread does not touch it afterwards. Call it
  /// before destroying the communicator.
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

}  // namespace trireme::comm
