#include "train/task/kept_rollouts.hpp"

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "train/rl/rollout.hpp"
#include "train/rl/rollout_progress.hpp"
#include "train/state/run_values.hpp"

namespace trireme::train {

KeptRollouts::KeptRollouts(const std::filesystem::path& run_directory, std::int64_t length,
                           std::int64_t kept)
    : checkpoints_(run_directory / "checkpoints"),
      rollouts_(run_directory / "rollouts"),
      length_(length),
      kept_(kept) {}

void KeptRollouts::remove_old(std::int64_t step, std::set<std::int64_t> needed) {
  if (kept_ == 0) return;
  // A file that cannot be deleted costs disk space, but the run continues.
  const auto error = comm::capture([&] {
    if (length_ > 1) {
      for (const std::int64_t saved : checkpoint::list_steps(checkpoints_))
        needed.insert(rollout_of_checkpoint(saved));
    }
    remove_old_rollouts(rollouts_, step, kept_, needed);
  });
  if (error && warned_.emplace(error->what()).second)
    log::warn(formatted("old files in {} are not deleted: {}", rollouts_.string(), error->what()));
}

void KeptRollouts::take(const std::filesystem::path& checkpoint, std::int64_t first_step) const {
  const std::string name = rollout_file_name(first_step);
  const auto other = checkpoint.parent_path().parent_path() / "rollouts";
  std::error_code code;
  if (!std::filesystem::exists(other / name, code)) {
    const std::int64_t before = first_step - 1;
    fail(
        ErrorKind::data,
        "{} is missing. {} lies within the rollout that begins with step {} and needs its answers. Restore this file, or give another --run and a --resume with a checkpoint between two rollouts: {}step {}, or a multiple of {} steps before or after it.",
        (other / name).string(), checkpoint.string(), first_step,
        before > 0 ? formatted("step {}, ", before) : "", before + length_, length_);
  }
  if (std::filesystem::equivalent(other, rollouts_, code)) return;
  std::filesystem::create_directories(rollouts_);
  write_file_atomic(rollouts_ / name, read_file(other / name));
}

std::int64_t KeptRollouts::rollout_of_checkpoint(std::int64_t step) {
  if (const auto found = known_.find(step); found != known_.end()) return found->second;
  const auto checkpoint =
      checkpoint::Checkpoint::open(checkpoints_ / checkpoint::step_directory_name(step));
  RolloutProgress progress;
  progress.restore(step, RunValues::from_values(checkpoint.manifest().values).samples);
  return known_[step] = progress.unfinished(step, length_);
}

}  // namespace trireme::train
