#include "checkpoint/retention.hpp"

#include <algorithm>

#include "checkpoint/agree.hpp"
#include "checkpoint/disk_reader.hpp"
#include "checkpoint/folder.hpp"
#include "core/error.hpp"

namespace trireme {
namespace {

/// Throws Error(data) if anything is not as recorded; a trusted one is checked by the sizes of its
/// files.
void check_good(const Checkpoint& checkpoint, bool trusted) {
  if (trusted) {
    for (const auto* list : {&checkpoint.manifest().shards, &checkpoint.manifest().files}) {
      for (const SavedFile& file : *list) (void)open_recorded(checkpoint.path(), file);
    }
  } else {
    const std::vector<std::string> damage = find_damage(checkpoint);
    if (!damage.empty()) throw Error(ErrorKind::data, damage.front());
  }
}

}  // namespace

std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& folder,
                                            const PruneOptions& options,
                                            const WarningSink& warn) {
  if (options.keep_last < 1)
    fail(ErrorKind::usage, "checkpoint.keep_last = ", options.keep_last, ", must be at least 1");
  std::int64_t num_good = 0;
  std::vector<std::int64_t> deleted;
  for (const std::int64_t step : list_steps(folder)) {
    const std::string name = step_folder_name(step);
    std::optional<Checkpoint> checkpoint;
    if (const auto error = capture([&] { checkpoint = Checkpoint::open(folder / name); })) {
      warn(cat("checkpoint ", name, " is left alone, it cannot be read: ", error->what()));
      continue;
    }
    if (checkpoint->manifest().run_id != options.run_id) {
      warn(cat("checkpoint ",
               name,
               " is left alone, it belongs to run ",
               checkpoint->manifest().run_id));
      continue;
    }
    if (num_good < options.keep_last) {
      const bool trusted =
          std::find(options.trusted.begin(), options.trusted.end(), step) != options.trusted.end();
      const auto error = capture([&] { check_good(*checkpoint, trusted); });
      if (error) warn(cat("checkpoint ", name, " does not count as kept: ", error->what()));
      num_good += error ? 0 : 1;
      continue;
    }
    if (options.keep_every > 0 && step % options.keep_every == 0) continue;
    discard_step(folder, step);
    deleted.push_back(step);
  }
  return deleted;
}

}  // namespace trireme
