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

  /// The step that the end will name.
  void reached(std::int64_t step) { step_ = step; }

  /// Rank 0's status.json: on its way, with its newest checkpoint (-1: none yet); at its end.
  void running(std::int64_t step, std::int64_t committed) const;
  void ended(bool done) const;

  /// After StoppedEarly, which is on all ranks: kExitStopped.
  [[nodiscard]] int stopped_before_first_step() const;

  /// After an error, if the folder was claimed: this rank's verdict, and status.json. `kind` as in
  /// Verdict.
  void failed(const std::string& kind, int code, const std::string& message) const;

 private:
  void take_folder();

  const RunRequest& run_;
  std::optional<RunLock> lock_;  // rank 0
  bool claimed_ = false;         // on all ranks
  std::int64_t step_;            // done
};

}  // namespace trireme
