#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/disk/run_lock.hpp"
#include "train/run/run_request.hpp"

namespace trireme {

/// What a run says of itself in its folder: LOCK, status.json, verdicts. Outlives all else of the
/// run, to say how it ended.
class RunRecord {
 public:
  /// Nothing is touched.
  explicit RunRecord(const RunRequest& run);

  /// Collective: the folder is this run's from here on, or what forbids it is thrown on all ranks.
  void claim();

  /// The run's lock, on rank 0 once it is claimed; else null.
  [[nodiscard]] RunLock* lock() { return lock_ ? &*lock_ : nullptr; }

  /// Once nothing can be wrong with the request any more: verdicts of the run's last part go.
  void begin(std::int64_t step);

  /// The step that the end will name.
  void reached(std::int64_t step) { step_ = step; }

  /// Rank 0's status.json: on its way, with its newest checkpoint (-1: none yet); at its end.
  void running(std::int64_t step, std::int64_t committed) const;
  void ended(bool done) const;

  /// After StoppedEarly, which is on all ranks: kExitStopped.
  [[nodiscard]] int stopped_before_first_step() const;

  /// After an error, if the folder was claimed: this rank's verdict, and status.json. A request
  /// that is refused before the run begins leaves the folder as it was. `kind` as in Verdict.
  void failed(const std::string& kind, int code, const std::string& message);

 private:
  void take_folder();
  void leave_folder();

  const RunRequest& run_;
  std::optional<RunLock> lock_;  // rank 0
  bool claimed_ = false;         // on all ranks
  bool begun_ = false;           // on all ranks
  bool had_root_ = false;        // rank 0, before the claim: the folder was there
  bool had_run_ = false;         // and held a run
  std::int64_t step_;            // done
};

}  // namespace trireme
