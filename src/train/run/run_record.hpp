#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "train/start/run_request.hpp"

namespace trireme {

/// What a run says of itself in its folder: LOCK, the journal, status.json, verdicts. Outlives all
/// else of the run, to say how it ended. A leg that was fenced (run_lock.hpp) says nothing more.
class RunRecord {
 public:
  /// Nothing is touched.
  explicit RunRecord(const RunRequest& run);

  /// Collective: the folder is this run's from here on, or what forbids it is thrown on all ranks.
  void claim();

  /// The run's lock, on rank 0 once it is claimed; else null.
  [[nodiscard]] RunLock* lock() { return lock_ ? &*lock_ : nullptr; }

  /// Collective, once nothing can be wrong with the request any more: the leg starts, verdicts of
  /// the one before go. `own_step`: the checkpoint of its own that it goes on from, -1: none.
  void begin(std::int64_t step, std::int64_t own_step, std::map<std::string, std::string> hashes);

  /// The step that the end will name.
  void reached(std::int64_t step);

  /// Rank 0: a checkpoint is published.
  void committed(std::int64_t step);

  /// Rank 0: what the run was asked for ("stop", "save") and by what.
  void requested(const std::string& want, const std::string& by);
  void ended(bool done);

  /// After StoppedEarly, which is on all ranks: kExitStopped.
  [[nodiscard]] int stopped_before_first_step();

  /// After an error, if the folder was claimed: this rank's verdict, and the leg's end. A request
  /// that is refused before the run begins leaves the folder as it was. `kind` as in Verdict.
  void failed(const std::string& kind, int code, const std::string& message);

 private:
  void take_folder();
  void leave_folder();
  void start(std::int64_t own_step, std::map<std::string, std::string> hashes);
  void end(const char* state, int code);
  void show(const char* state, int code, std::int64_t committed);
  [[nodiscard]] bool may_write();

  const RunRequest& run_;
  std::shared_ptr<Journal> journal_;
  std::optional<RunLock> lock_;  // rank 0
  bool claimed_ = false;         // on all ranks
  bool begun_ = false;           // on all ranks
  bool started_ = false;         // rank 0: the leg has its first line
  bool stepped_ = false;         // a step of this leg is done
  bool had_root_ = false;        // rank 0, before the claim: the folder was there
  bool had_run_ = false;         // and held a run
  std::int64_t step_;            // done
  std::vector<std::string> nodes_;
};

}  // namespace trireme
