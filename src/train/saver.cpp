#include "train/saver.hpp"

#include <chrono>

#include "checkpoint/retention.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/agreement.hpp"

namespace trireme {

CheckpointSaver::CheckpointSaver(std::filesystem::path folder,
                                 std::string run_id,
                                 const CheckpointConfig& config,
                                 Communicator& world)
    : folder_(std::move(folder)), run_id_(std::move(run_id)), config_(config), world_(world) {}

void CheckpointSaver::save(std::int64_t step, const StateDict& state) {
  commit();
  const SaveOptions options{run_id_, /*copy=*/config_.async};
  if (!config_.async) {
    all_or_none(world_,
                [&] { published_ = save_checkpoint(folder_, step, state, world_, options); });
    announce(step);
    return;
  }
  all_or_none(world_, [&] { staged_ = stage_checkpoint(folder_, step, state, world_, options); });
  staged_step_ = step;
  writer_ = std::async(std::launch::async, [this] { return write_staged_shard(*staged_); });
}

bool CheckpointSaver::writer_done() const {
  return writer_.valid() && writer_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CheckpointSaver::commit() {
  if (!staged_) return;
  const WrittenShard written = writer_.get();
  const StagedCheckpoint staged = std::move(*staged_);
  staged_.reset();
  all_or_none(world_, [&] { published_ = commit_checkpoint(staged, written, world_); });
  announce(staged_step_);
}

void CheckpointSaver::announce(std::int64_t step) {
  log::info(cat("saved ", published_.string()));
  trusted_.push_back(step);
  if (config_.keep_last == 0) return;
  all_or_none(world_, [&] {
    if (world_.rank() != 0) return;
    prune_checkpoints(
        folder_, {run_id_, config_.keep_last, 0, trusted_}, [this](std::string_view text) {
          if (warned_.emplace(text).second) log::warn(text);
        });
  });
}

}  // namespace trireme
