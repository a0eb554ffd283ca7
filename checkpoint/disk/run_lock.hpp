#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

namespace trireme {

struct RunLockOptions {
  std::string job_id;        // shown to whoever is refused; "" outside a scheduler
  std::uint64_t order = 0;   // of this leg among those of the job: a later one fences an earlier
  double heartbeat_s = 1.0;  // how often the holder's counter grows
  double takeover_s =
      5.0;  // a holder on another host is dead if its counter stands still for so long
};

/// Makes a run folder this process's own: a lease file `LOCK` with host, pid,
/// boot id and a heartbeat counter.
///
/// A holder on this host is dead when its process is gone; one elsewhere when its counter stands
/// still. A dead one is taken over, by exactly one of any number of contenders. So is, at once and
/// alive or not, one of the same job and an earlier leg: the scheduler has begun the job anew and
/// gave its old processes up (a node that it lost sight of may train on). No clocks are
/// compared, no flock (some cluster file systems lack it): the file appears by link(2), which
/// either makes it whole or fails. Taken by rank 0 before anything is written. A thread of its own
/// writes the heartbeat until the destructor, which removes the file if it is still ours.
class RunLock {
 public:
  /// Throws Error(usage) naming the holder if the run is in use, Error(resource)
  /// if the disk refuses.
  RunLock(const std::filesystem::path& run_folder, const RunLockOptions& options);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// Throws Error(usage) if another process has taken the run over, as far as the last heartbeat
  /// saw: then nothing may be written any more.
  void check() const;

  /// The same, from the file as it is now: this process may have stood still
  /// since the last heartbeat.
  void confirm();

  /// The same as an answer.
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

}  // namespace trireme
