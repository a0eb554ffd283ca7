#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "train/start/run_request.hpp"

namespace trireme::train {

/// Writes the records of a run into its directory: LOCK, event log, status.json and failure
/// reports. The object is destroyed after all other parts of the run, so that it can record the
/// end. If the attempt has lost its lock (run_lock.hpp), the object writes nothing more.
class RunRecord {
 public:
  /// Changes no file.
  explicit RunRecord(const RunRequest& run);

  /// Claims the run directory for this attempt. Collective. If the claim is refused, throws on all
  /// ranks.
  void claim();

  /// Returns the run's lock on rank 0 after claim(); null otherwise.
  [[nodiscard]] checkpoint::RunLock* lock() { return lock_ ? &*lock_ : nullptr; }

  /// Records the start of the attempt and removes the failure reports of the previous one. Call
  /// this function after all checks of the request. `own_step`: step of the run's own checkpoint
  /// that it resumes from, or -1. Collective.
  void begin(std::int64_t step, std::int64_t own_step, std::map<std::string, std::string> hashes);

  /// Returns the host of each rank on rank 0 after begin(), and an empty list on other ranks.
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }

  /// Sets the last completed step for the record of the end. The first call also records that the
  /// attempt has completed a step.
  void reached(std::int64_t step);

  /// Records that a checkpoint is published. Rank 0.
  void committed(std::int64_t step);

  /// Records a request ("stop" or "save") and its source. Rank 0.
  void requested(const std::string& want, const std::string& by);

  /// Records the end of the attempt. `reason`: why a run that is done has not reached its last
  /// step; "" otherwise. Rank 0.
  void ended(bool done, const std::string& reason = "");

  /// Records a stop before the first step (StoppedEarly on all ranks). Returns kExitStopped.
  [[nodiscard]] int stopped_before_first_step();

  /// Records an error if the directory was claimed: this rank's failure report and the end of the
  /// attempt. If the request was refused before begin(), restores the directory instead. `kind`:
  /// see FailureReport.
  void failed(const std::string& kind, int code, const std::string& message);

 private:
  void claim_directory();
  void release_directory();
  void start(std::int64_t own_step, std::map<std::string, std::string> hashes);
  void end(const char* state, int code, const std::string& reason = "");
  void show(const char* state, int code, std::int64_t committed);
  [[nodiscard]] bool may_write();

  const RunRequest& run_;
  std::shared_ptr<job::EventLog> event_log_;
  std::optional<checkpoint::RunLock> lock_;  // on rank 0
  bool claimed_ = false;                     // on all ranks
  bool begun_ = false;                       // on all ranks
  bool started_ = false;            // on rank 0: the event log has the start of this attempt
  bool stepped_ = false;            // true after the first step of this attempt
  bool had_root_ = false;           // on rank 0: the directory existed before the claim
  bool had_run_ = false;            // on rank 0: the directory held a run before the claim
  std::int64_t step_;               // number of completed steps
  std::string requested_by_{};      // the sender of the last request to stop; "": none
  std::vector<std::string> hosts_;  // hosts of all ranks, on rank 0
};

}  // namespace trireme::train
