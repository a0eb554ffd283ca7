#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

namespace trireme::checkpoint {

struct RunLockOptions {
  std::string job_id;        // shown in the refusal message; "" outside a scheduler
  std::uint64_t order = 0;   // attempt number within the job; a later attempt fences an earlier one
  double heartbeat_s = 1.0;  // interval between increments of the holder's counter
  double takeover_s =
      5.0;  // a holder on another host is dead if its counter is unchanged this long
};

/// Locks a run directory for this process with a lease file `LOCK`: host, pid, boot id and a
/// heartbeat counter.
///
/// - A holder on this host is dead if its process is gone. A holder on another host is dead if its
///   counter does not change. Exactly one of any number of contenders takes over a dead lock.
/// - A lock of an earlier attempt of the same job is taken over at once, even if its process is
///   alive: the scheduler has restarted the job and may have lost contact with a node.
/// - No clocks are compared and no flock is used, because some cluster file systems lack flock.
///   link(2) creates the complete file or fails.
///
/// Rank 0 takes the lock before anything is written. A thread writes the heartbeat until the
/// destructor, which removes the file if this process still holds the lock.
class RunLock {
 public:
  /// Throws Error(usage) naming the holder if the run is in use, Error(resource) if a disk
  /// operation fails.
  RunLock(const std::filesystem::path& run_folder, const RunLockOptions& options);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// Throws Error(usage) if the last heartbeat saw that another process has taken over the run.
  /// This process must then write nothing more.
  void check() const;

  /// Like check, but reads the file first: this process may have been suspended since the last
  /// heartbeat.
  void confirm();

  /// Like confirm, but returns false instead of throwing.
  [[nodiscard]] bool is_held();

 private:
  void beat(double period_s);
  void look();

  std::filesystem::path path_;
  std::string owner_;  // the record without the counter
  std::string nonce_;
  int fd_ = -1;
  std::uint64_t counter_ = 0;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme::checkpoint
