#include "checkpoint/maintenance/retention.hpp"

#include <algorithm>
#include <set>

#include "checkpoint/disk/disk_reader.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::checkpoint {
namespace {

/// Throws Error(data) if the checkpoint is damaged. For a trusted checkpoint, checks only the sizes
/// of its files.
void check_good(const Checkpoint& checkpoint, bool trusted) {
  if (trusted) {
    for (const auto* list : {&checkpoint.manifest().shards, &checkpoint.manifest().files}) {
      for (const SavedFile& file : *list) (void)open_recorded(checkpoint.path(), file);
    }
  } else {
    const Damage damage = find_damage(checkpoint);
    if (!damage.empty()) throw Error(ErrorKind::data, damage.front());
  }
}

/// Selects the checkpoints of one directory to delete.
class Pruner {
 public:
  Pruner(const std::filesystem::path& directory, const PruneOptions& options,
         const WarningSink& warn)
      : options_(options), warn_(warn) {
    for (const std::int64_t step : list_steps(directory)) {
      const std::string name = step_directory_name(step);
      std::optional<Checkpoint> checkpoint;
      if (const auto error =
              comm::capture([&] { checkpoint = Checkpoint::open(directory / name); })) {
        warn_(
            formatted("checkpoint {} is not deleted, it cannot be read: {}", name, error->what()));
      } else if (checkpoint->manifest().run_id != options.run_id) {
        warn_(formatted("checkpoint {} is not deleted, it belongs to run {}", name,
                        checkpoint->manifest().run_id));
      } else {
        ours_.push_back(*std::move(checkpoint));
      }
    }
  }

  /// Returns the steps to delete, newest first.
  std::vector<std::int64_t> surplus() {
    std::set<std::int64_t> kept;
    std::int64_t num_good = 0;
    for (const Checkpoint& checkpoint : ours_) {
      if (num_good == options_.keep_last) break;
      kept.insert(checkpoint.step());
      num_good += is_good(checkpoint) ? 1 : 0;
    }
    keep_best(kept);
    std::vector<std::int64_t> steps;
    for (const Checkpoint& checkpoint : ours_) {
      const bool permanent =
          options_.keep_every > 0 && checkpoint.step() % options_.keep_every == 0;
      if (!permanent && !kept.contains(checkpoint.step())) steps.push_back(checkpoint.step());
    }
    return steps;
  }

 private:
  bool is_good(const Checkpoint& checkpoint) {
    const auto known = good_.find(checkpoint.step());
    if (known != good_.end()) return known->second;
    const bool trusted = std::find(options_.trusted.begin(), options_.trusted.end(),
                                   checkpoint.step()) != options_.trusted.end();
    const auto error = comm::capture([&] { check_good(checkpoint, trusted); });
    if (error)
      warn_(formatted("checkpoint {} is not counted as good: {}",
                      step_directory_name(checkpoint.step()), error->what()));
    return good_[checkpoint.step()] = !error;
  }

  void keep_best(std::set<std::int64_t>& kept) {
    std::vector<std::pair<double, const Checkpoint*>> by_loss;
    for (const Checkpoint& checkpoint : ours_) {
      const auto value = checkpoint.manifest().values.find(kValidLossValue);
      if (value == checkpoint.manifest().values.end()) continue;
      if (const auto loss = parse_number(value->second)) by_loss.emplace_back(*loss, &checkpoint);
    }
    std::stable_sort(by_loss.begin(), by_loss.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::int64_t num_best = 0;
    for (const auto& [loss, checkpoint] : by_loss) {
      if (num_best == options_.keep_best) return;
      if (!is_good(*checkpoint)) continue;
      kept.insert(checkpoint->step());
      ++num_best;
    }
  }

  const PruneOptions& options_;
  const WarningSink& warn_;
  std::vector<Checkpoint> ours_;  // newest first
  std::map<std::int64_t, bool> good_;
};

}  // namespace

void check_prune_options(const PruneOptions& options, const PruneNames& names) {
  if (options.keep_last < 1)
    fail(ErrorKind::usage, "{} = {}, must be at least 1", names.keep_last, options.keep_last);
  if (options.keep_every < 0)
    fail(ErrorKind::usage, "{} = {}, must be 0 or more", names.keep_every, options.keep_every);
  if (options.keep_best < 0)
    fail(ErrorKind::usage, "{} = {}, must be 0 or more", names.keep_best, options.keep_best);
}

std::vector<std::int64_t> surplus_checkpoints(const std::filesystem::path& directory,
                                              const PruneOptions& options,
                                              const WarningSink& warn) {
  check_prune_options(options);
  return Pruner(directory, options, warn).surplus();
}

std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& directory,
                                            const PruneOptions& options, const WarningSink& warn) {
  const std::vector<std::int64_t> steps = surplus_checkpoints(directory, options, warn);
  std::optional<Error> first;
  for (const std::int64_t step : steps) {
    const auto error = comm::capture([&] { discard_step(directory, step); });
    if (!first) first = error;
  }
  if (first) throw Error(*first);
  return steps;
}

}  // namespace trireme::checkpoint
