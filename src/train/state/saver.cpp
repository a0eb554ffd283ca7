#include "train/state/saver.hpp"

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/retention.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

/// Returns the size of the files in a checkpoint directory, for log messages.
double bytes_in(const std::filesystem::path& folder) {
  double total = 0;
  std::error_code code;
  for (std::filesystem::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::uintmax_t size = entry->file_size(code);
    if (!code) total += static_cast<double>(size);
  }
  return total;
}

}  // namespace

CheckpointSaver::CheckpointSaver(std::filesystem::path folder, std::string run_id,
                                 const CheckpointConfig& config, checkpoint::RunLock* lock,
                                 comm::Communicator& world)
    : folder_(std::move(folder)),
      run_id_(std::move(run_id)),
      config_(config),
      lock_(lock),
      world_(world),
      writer_(config.write_mb_per_s) {}

void CheckpointSaver::save(std::int64_t step, const checkpoint::StateDict& state) {
  commit();
  confirm_lock();
  if (!has_saved_) reserve_descriptors();
  has_saved_ = true;
  since_start_.restart();
  const checkpoint::SaveOptions borrowed{run_id_, /*copy=*/false};
  if (!config_.async) {
    comm::all_or_none(world_, [&] {
      published_ = checkpoint::save_checkpoint(folder_, step, state, world_, borrowed);
    });
    announce(step, formatted(" in {}", format_seconds(since_start_.seconds())));
    return;
  }
  comm::all_or_none(world_, [&] {
    writer_.start(checkpoint::stage_checkpoint(folder_, step, state, world_, borrowed));
  });
  staged_step_ = step;
  waited_s_ = since_start_.seconds();
}

void CheckpointSaver::wait_copied() {
  const Timer timer;
  writer_.wait_copied();
  waited_s_ += timer.seconds();
}

bool CheckpointSaver::writer_done() const {
  return writer_.done();
}

void CheckpointSaver::commit() {
  if (!in_flight()) return;
  checkpoint::AsyncSaver::Result result = writer_.finish();
  confirm_lock();
  comm::all_or_none(world_, [&] {
    published_ = checkpoint::commit_checkpoint(result.staged, result.written, world_);
  });
  writer_.recycle(result.staged);
  announce(
      staged_step_,
      formatted(" behind training in {}, which waited {}; the copy keeps {} of this rank's memory",
                format_seconds(since_start_.seconds()), format_seconds(waited_s_),
                format_bytes(static_cast<double>(writer_.memory_bytes()))));
}

void CheckpointSaver::confirm_lock() {
  comm::all_or_none(world_, [&] {
    if (lock_ != nullptr) lock_->confirm();
  });
}

void CheckpointSaver::announce(std::int64_t step, const std::string& how) {
  if (world_.rank() == 0) {
    if (on_commit_) on_commit_(step);
    log::info(
        formatted("saved {}: {}{}", published_.string(), format_bytes(bytes_in(published_)), how));
  }
  trusted_.push_back(step);
  prune();
}

void CheckpointSaver::trust_existing() {
  if (world_.rank() != 0) return;
  // If the directory cannot be listed, pruning reads its checkpoints.
  (void)comm::capture([&] { trusted_ = checkpoint::list_steps(folder_); });
}

void CheckpointSaver::reserve(std::size_t bytes) {
  if (config_.async) writer_.reserve(bytes);
}

void CheckpointSaver::reserve_descriptors() {
  // Pruning reads the kept checkpoints, so skip it if there is nothing to delete.
  const auto keep = static_cast<std::size_t>(config_.keep_last);
  if (world_.rank() == 0 && checkpoint::list_steps(folder_).size() > keep) prune();
}

void CheckpointSaver::prune() {
  if (config_.keep_last == 0 || world_.rank() != 0) return;
  const auto warn = [this](std::string_view text) {
    if (warned_.emplace(text).second) log::warn(text);
  };
  const checkpoint::PruneOptions options{.run_id = run_id_,
                                         .keep_last = config_.keep_last,
                                         .keep_every = config_.keep_every,
                                         .keep_best = config_.keep_best,
                                         .trusted = trusted_};
  // A checkpoint that cannot be deleted costs disk space, but the run continues.
  if (const auto error =
          comm::capture([&] { checkpoint::prune_checkpoints(folder_, options, warn); }))
    warn(error->what());
}

}  // namespace trireme::train
