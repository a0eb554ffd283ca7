#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace trireme::train {

/// The files in RUN/rollouts. A checkpoint within a rollout needs the file of this rollout, because
/// a run that continues from it trains on the same answers. Only rank 0 of a run calls the
/// functions.
class KeptRollouts {
 public:
  /// `length`: steps of a rollout. `kept`: number of newest files to keep (rl.keep_rollouts); 0:
  /// all.
  KeptRollouts(const std::filesystem::path& run_directory, std::int64_t length, std::int64_t kept);

  /// Removes the files of all steps before `step` but the newest `kept` - 1, the files that a
  /// checkpoint of the run needs, and `needed`. Later files stay. If a checkpoint or a file cannot
  /// be read, a file may stay, and the log has a warning.
  ///   needed  first steps of rollouts; a number that has no file has no effect
  void remove_old(std::int64_t step, std::set<std::int64_t> needed);

  /// Copies the file of a rollout from the run of `checkpoint`, unless it is this run. The file
  /// appears whole or not at all. Throws Error(data) if that run does not have the file any more.
  ///   checkpoint  RUN/checkpoints/step-NNNNNNNNN, a checkpoint within the rollout
  ///   first_step  first step of the rollout
  void take(const std::filesystem::path& checkpoint, std::int64_t first_step) const;

 private:
  /// Returns the first step of the rollout that a checkpoint of the run lies within; 0 if none.
  std::int64_t rollout_of_checkpoint(std::int64_t step);

  std::filesystem::path checkpoints_;
  std::filesystem::path rollouts_;
  std::int64_t length_;
  std::int64_t kept_;
  std::map<std::int64_t, std::int64_t> known_;  // rollout_of_checkpoint(), by step
  std::set<std::string> warned_;
};

}  // namespace trireme::train
