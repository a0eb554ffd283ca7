#include "comm/nccl/nccl_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/log.hpp"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kInterval{20};

void leave_at_once(const std::string& message) {
  log::error(message);
  log::flush();
  _exit(exit_code(ErrorKind::comm));
}

}  // namespace

NcclWatch::NcclWatch(const NcclApi& api, int device,
                     std::function<void(const std::string&)> on_hang)
    : api_(api), device_(device), on_hang_(on_hang ? std::move(on_hang) : leave_at_once) {
  thread_ = std::jthread([this] { run(); });
}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void NcclWatch::add(ncclComm_t comm, Call call, std::shared_ptr<const CommEvent> done) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back({comm, std::move(call), std::move(done), RunningTimer()});
  }
  changed_.notify_all();
}

void NcclWatch::remove(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [comm](const Entry& entry) { return entry.comm == comm; });
}

void NcclWatch::run() {
  api_.set_device(device_);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      changed_.wait(lock, [this] { return stopping_ || !entries_.empty(); });
      continue;
    }
    std::string problem;
    try {
      problem = look();
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (!problem.empty()) {
      entries_.clear();
      lock.unlock();
      on_hang_(problem);
      lock.lock();
      continue;
    }
    changed_.wait_for(lock, kInterval, [this] { return stopping_; });
  }
}

/// Checks all entries. Returns the problem as text, or "". The caller must hold the lock.
std::string NcclWatch::look() {
  std::erase_if(entries_, [](const Entry& entry) {
    const bool done = entry.done->reached();
    if (done) entry.call.complete();
    return done;
  });
  for (Entry& entry : entries_) {
    ncclResult_t state = ncclSuccess;
    api_.comm_get_async_error(entry.comm, &state);
    if (state != ncclSuccess && state != ncclInProgress)
      return formatted("{}: NCCL reports {}", entry.call.what, api_.get_error_string(state));
    if (entry.age.seconds() > entry.call.timeout_s) entry.call.timed_out();  // throws the message
  }
  return "";
}

}  // namespace trireme::comm
