#include "train/saver.hpp"

#include "checkpoint/retention.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/agreement.hpp"

namespace trireme {

CheckpointSaver::CheckpointSaver(std::filesystem::path folder,
                                 std::string run_id,
                                 const CheckpointConfig& config,
                                 Communicator& world)
    : folder_(std::move(folder)),
      run_id_(std::move(run_id)),
      config_(config),
      world_(world),
      writer_(config.write_mb_per_s) {}

void CheckpointSaver::save(std::int64_t step, const StateDict& state) {
  commit();
  const SaveOptions borrowed{run_id_, /*copy=*/false};
  if (!config_.async) {
    all_or_none(world_,
                [&] { published_ = save_checkpoint(folder_, step, state, world_, borrowed); });
    announce(step);
    return;
  }
  all_or_none(world_, [&] {
    writer_.start(stage_checkpoint(folder_, step, state, world_, borrowed));
    writer_.wait_copied();
  });
  staged_step_ = step;
}

bool CheckpointSaver::writer_done() const {
  return writer_.done();
}

void CheckpointSaver::commit() {
  if (!in_flight()) return;
  WriteBehind::Result result = writer_.finish();
  all_or_none(world_,
              [&] { published_ = commit_checkpoint(result.staged, result.written, world_); });
  writer_.recycle(result.staged);
  announce(staged_step_);
}

void CheckpointSaver::announce(std::int64_t step) {
  log::info(cat("saved ", published_.string()));
  trusted_.push_back(step);
  if (config_.keep_last == 0) return;
  all_or_none(world_, [&] {
    if (world_.rank() != 0) return;
    const PruneOptions options{.run_id = run_id_,
                               .keep_last = config_.keep_last,
                               .keep_every = config_.keep_every,
                               .keep_best = config_.keep_best,
                               .trusted = trusted_};
    prune_checkpoints(folder_, options, [this](std::string_view text) {
      if (warned_.emplace(text).second) log::warn(text);
    });
  });
}

}  // namespace trireme
