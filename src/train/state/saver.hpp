#pragma once
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/save/async_saver.hpp"
#include "core/timer.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

/// Writes the run's checkpoints, synchronously or in the background, and prunes old ones. Methods
/// are collective unless stated otherwise.
class CheckpointSaver {
 public:
  /// `lock`: the run's lock, on the rank that holds it. Nothing is published after it is lost.
  CheckpointSaver(std::filesystem::path folder, std::string run_id, const CheckpointConfig& config,
                  checkpoint::RunLock* lock, comm::Communicator& world);

  /// Sets a function that rank 0 calls with each committed step, before older checkpoints are
  /// pruned.
  void on_commit(std::function<void(std::int64_t)> note) { on_commit_ = std::move(note); }

  /// If checkpoint.async is set, allocates this rank's copy buffer of `bytes` during the first steps.
  /// Not collective.
  void reserve(std::size_t bytes);

  /// Trusts all checkpoints of the directory: a resume has verified the newest one and moved newer
  /// damaged ones away. Older ones are checked only by size, because rank 0 would read them as a
  /// whole when it prunes, while the other ranks wait. Not collective.
  void trust_existing();

  /// Saves `state`. The first save prunes first, because the disk may be full after a resume with
  /// a lower checkpoint.keep_last. With checkpoint.async: commits a pending save and returns at
  /// once; a thread copies and writes the state, which must not change before wait_copied().
  /// Otherwise returns after the checkpoint is published. Throws on all ranks if a save, this or
  /// an earlier one, failed on any rank.
  void save(std::int64_t step, const checkpoint::StateDict& state);

  /// Waits until the state of a pending save may change. Not collective.
  void wait_copied();

  /// Returns true if this rank's writer thread has ended and its result waits for commit(). Not
  /// collective.
  [[nodiscard]] bool writer_done() const;

  /// Returns true if a save is pending. The result is the same on all ranks.
  [[nodiscard]] bool in_flight() const { return writer_.in_flight(); }

  /// Publishes the pending save; waits for the writer if necessary.
  void commit();

 private:
  void confirm_lock();
  void announce(std::int64_t step, const std::string& how);
  void reserve_descriptors();
  /// Prunes on rank 0. A failure is only a warning.
  void prune();

  std::filesystem::path folder_;
  std::string run_id_;
  CheckpointConfig config_;
  checkpoint::RunLock* lock_;
  std::function<void(std::int64_t)> on_commit_;
  comm::Communicator& world_;
  std::filesystem::path published_;
  std::vector<std::int64_t> trusted_;  // steps that pruning checks only by the sizes of the files
  bool has_saved_ = false;
  std::set<std::string> warned_;  // warnings of pruning that were already shown
  std::int64_t staged_step_ = 0;
  Timer since_start_;    // started with the pending save
  double waited_s_ = 0;  // time that training on this rank waited for the pending save
  checkpoint::AsyncSaver writer_;
};

}  // namespace trireme::train
