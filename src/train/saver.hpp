#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/write_behind.hpp"
#include "train/config.hpp"

namespace trireme {

/// Writes the run's checkpoints, at once or behind training, and prunes old ones. All methods but
/// writer_done are collective.
class CheckpointSaver {
 public:
  CheckpointSaver(std::filesystem::path folder,
                  std::string run_id,
                  const CheckpointConfig& config,
                  Communicator& world);

  /// With checkpoint.async: returns once the state is copied, while a thread writes; a save still
  /// in flight is committed first. Otherwise returns when the checkpoint is published. Throws on
  /// all ranks what failed on one, earlier saves included.
  void save(std::int64_t step, const StateDict& state);

  /// True when a writer thread of this rank has ended and its result waits for commit.
  [[nodiscard]] bool writer_done() const;

  [[nodiscard]] bool in_flight() const { return writer_.in_flight(); }

  /// Publishes the save in flight; waits for the writer if it must.
  void commit();

 private:
  void announce(std::int64_t step);

  std::filesystem::path folder_;
  std::string run_id_;
  CheckpointConfig config_;
  Communicator& world_;
  std::filesystem::path published_;
  std::vector<std::int64_t> trusted_;  // steps saved by this process
  std::set<std::string> warned_;       // each of pruning's warnings is shown once
  std::int64_t staged_step_ = 0;
  WriteBehind writer_;
};

}  // namespace trireme
