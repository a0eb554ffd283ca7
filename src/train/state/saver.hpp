#pragma once
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/save/write_behind.hpp"
#include "core/timer.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// Writes the run's checkpoints, at once or behind training, and prunes old ones. All methods are
/// collective where nothing else is said.
class CheckpointSaver {
 public:
  /// `lock`: the run's, on the rank that holds it; nothing is published once it is lost.
  CheckpointSaver(std::filesystem::path folder, std::string run_id, const CheckpointConfig& config,
                  RunLock* lock, Communicator& world);

  /// Rank 0 calls it with each step that is committed, before older ones are pruned.
  void on_commit(std::function<void(std::int64_t)> note) { on_commit_ = std::move(note); }

  /// Not collective. With checkpoint.async: makes the memory of this rank's copy of `bytes` beside
  /// the first steps.
  void reserve(std::size_t bytes);

  /// Not collective. A step of the folder that was verified, the one resumed from.
  void trust(std::int64_t step) { trusted_.push_back(step); }

  /// The first save begins with the pruning that each ends with: after a resume with a lower
  /// checkpoint.keep_last the disk may be full.
  /// With checkpoint.async: returns at once, while a thread copies the state and writes the copy;
  /// the state must stay as it is until wait_copied. A save still in flight is committed first.
  /// Otherwise returns when the checkpoint is published. Throws on all ranks what failed on one,
  /// earlier saves included.
  void save(std::int64_t step, const StateDict& state);

  /// Not collective. Blocks until the state of a save in flight may change.
  void wait_copied();

  /// Not collective. True when a writer thread of this rank has ended and its
  /// result waits for commit.
  [[nodiscard]] bool writer_done() const;

  /// The same on all ranks.
  [[nodiscard]] bool in_flight() const { return writer_.in_flight(); }

  /// Publishes the save in flight; waits for the writer if it must.
  void commit();

 private:
  void confirm_lock();
  void announce(std::int64_t step, const std::string& how);
  void make_room();
  /// Rank 0; what it cannot do is a warning.
  void prune();

  std::filesystem::path folder_;
  std::string run_id_;
  CheckpointConfig config_;
  RunLock* lock_;
  std::function<void(std::int64_t)> on_commit_;
  Communicator& world_;
  std::filesystem::path published_;
  std::vector<std::int64_t> trusted_;  // steps saved or verified by this process
  bool has_saved_ = false;
  std::set<std::string> warned_;  // each of pruning's warnings is shown once
  std::int64_t staged_step_ = 0;
  Timer since_start_;    // of the save in flight
  double waited_s_ = 0;  // training for it, on this rank
  WriteBehind writer_;
};

}  // namespace trireme
