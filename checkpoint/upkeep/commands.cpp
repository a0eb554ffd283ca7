#include "checkpoint/upkeep/commands.hpp"

#include <optional>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/upkeep/diff.hpp"
#include "checkpoint/upkeep/reshard.hpp"
#include "checkpoint/upkeep/retention.hpp"
#include "checkpoint/upkeep/verify.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Of one checkpoint, or of each in a run, newest first.
std::vector<fs::path> step_folders(const fs::path& place) {
  const CheckpointPlace found = find_place(place);
  if (found.is_step) return {found.path};
  std::vector<fs::path> folders;
  for (const std::int64_t step : list_steps(found.path))
    folders.push_back(found.path / step_folder_name(step));
  return folders;
}

double total_bytes(const CheckpointManifest& manifest) {
  double total = 0;
  for (const auto* list : {&manifest.shards, &manifest.files}) {
    for (const SavedFile& file : *list) total += static_cast<double>(file.bytes);
  }
  return total;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += cat(text.empty() ? "" : "x", size);
  return text.empty() ? "scalar" : text;
}

/// Nothing there but what an import leaves that was killed before its checkpoint was whole.
bool is_vacant(const fs::path& run_folder) {
  bool vacant = true;
  const auto look = [&](const fs::path& folder, const std::string& allowed) {
    for (const fs::path& entry : list_folder(folder)) {
      const std::string name = entry.filename().string();
      if (name != "checkpoints" && !name.starts_with(allowed)) vacant = false;
    }
  };
  (void)capture([&] {  // what cannot be looked into is refused when it is written
    look(run_folder, "LOCK");
    look(run_folder / "checkpoints", ".tmp-step-");
  });
  return vacant;
}

}  // namespace

Checkpoint open_newest_good(const fs::path& place, bool allow_older) {
  const CheckpointPlace found = find_place(place);
  if (found.is_step) return Checkpoint::open(found.path);
  std::vector<SkippedStep> skipped;
  const std::optional<Checkpoint> checkpoint = find_newest_good(found.path, skipped);
  std::string damage;
  for (const SkippedStep& one : skipped) {
    const std::string name = step_folder_name(one.step);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(found.path / name, ignored)))
      continue;  // a run that goes on has pruned it
    damage += formatted("\n{}: {}", name, one.reason);
  }
  if (!checkpoint)
    fail(ErrorKind::data, "{}: none of its checkpoints is good{}", place.string(), damage);
  if (damage.empty()) return *checkpoint;
  const std::string newest_good = step_folder_name(checkpoint->step());
  if (!allow_older) {
    fail(
        ErrorKind::data,
        "{}: its newest checkpoint is damaged{}\nThe newest good one is {}: give that folder, or --allow-older.",
        place.string(), damage, newest_good);
  }
  log::warn(
      formatted("{}: taking {}, newer ones are damaged{}", place.string(), newest_good, damage));
  return *checkpoint;
}

std::string checkpoint_list(const fs::path& place) {
  std::string text;
  for (const fs::path& folder : step_folders(place)) {
    std::optional<Checkpoint> checkpoint;
    const auto error = capture([&] { checkpoint = Checkpoint::open(folder); });
    text += folder.filename().string() + "  ";
    if (error) {
      text += formatted("damaged: {}\n", error->what());
      continue;
    }
    const CheckpointManifest& manifest = checkpoint->manifest();
    text += formatted("{}  {} tensors  {}{}  run {}\n", format_bytes(total_bytes(manifest)),
                      manifest.tensors.size(), manifest.shards.size(),
                      manifest.shards.size() == 1 ? " shard" : " shards", manifest.run_id);
  }
  return text;
}

std::string checkpoint_verify(const fs::path& place) {
  std::string text;
  std::string damage;
  for (const fs::path& folder : step_folders(place)) {
    const auto error = capture([&] {
      const Checkpoint checkpoint = verify_checkpoint(folder);
      text += formatted("{}  good, {}\n", folder.filename().string(),
                        format_bytes(total_bytes(checkpoint.manifest())));
    });
    if (error && error->kind() != ErrorKind::data) throw Error(error->kind(), error->what());
    std::error_code code;
    if (error && !fs::exists(folder, code)) continue;  // a run that goes on has pruned it
    if (error) damage += cat(damage.empty() ? "" : "\n", error->what());
  }
  if (!damage.empty()) throw Error(ErrorKind::data, damage);
  return text;
}

std::string checkpoint_hash(const fs::path& place, bool allow_older) {
  return hash_tensors(open_newest_good(place, allow_older)) + "\n";
}

std::string checkpoint_inspect(const fs::path& place, bool layout, bool allow_older) {
  const Checkpoint checkpoint = open_newest_good(place, allow_older);
  if (layout) return layout_text(checkpoint.manifest());
  const CheckpointManifest& manifest = checkpoint.manifest();
  std::string text = formatted("{}\n  format {}, run {}, step {}, {}\nvalues\n",
                               checkpoint.path().string(), kCheckpointVersion, manifest.run_id,
                               manifest.step, format_bytes(total_bytes(manifest)));
  for (const auto& [key, value] : manifest.values) text += formatted("  {} = {}\n", key, value);
  text += "files\n";
  for (const auto* list : {&manifest.files, &manifest.shards}) {
    for (const SavedFile& file : *list)
      text += formatted("  {}  {} bytes  {}\n", file.name, file.bytes, file.hash);
  }
  text += "tensors\n";
  for (const auto& [name, tensor] : manifest.tensors) {
    text += formatted("  {}  {} {}  {}{}", name, dtype_name(tensor.dtype), shape_text(tensor.shape),
                      tensor.slices.size(), tensor.slices.size() == 1 ? " slice\n" : " slices\n");
  }
  return text;
}

CheckpointDiff checkpoint_diff(const fs::path& a, const fs::path& b, bool allow_older) {
  const std::string text =
      checkpoint_differences(open_newest_good(a, allow_older), open_newest_good(b, allow_older));
  return text.empty() ? CheckpointDiff{"the same state\n", true} : CheckpointDiff{text, false};
}

std::string checkpoint_reshard(const ReshardCommand& options) {
  if ((options.ranks > 0) == !options.layout.empty() || options.ranks < 0)
    fail(ErrorKind::usage,
         "checkpoint reshard needs either --ranks N (at least 1) or --layout FILE");
  const Checkpoint from = open_newest_good(options.from, options.allow_older);
  const ReshardLayout layout = options.layout.empty()
                                   ? spread_layout(from.manifest(), options.ranks)
                                   : read_layout(options.layout, from.manifest());
  const RunLock lock(locked_folder(options.output), RunLockOptions{});
  const fs::path written = reshard_checkpoint(from, layout, options.output);
  return formatted("{} -> {}\n", from.path().string(), written.string());
}

std::string checkpoint_prune(const PruneCommand& options) {
  const CheckpointPlace found = find_place(options.place);
  if (found.is_step)
    fail(ErrorKind::usage,
         "{} is one checkpoint; prune takes a run folder, or the folder of its checkpoints",
         options.place);
  std::optional<RunLock> lock;
  if (!options.dry_run) lock.emplace(locked_folder(found.path), RunLockOptions{});
  PruneOptions prune{.run_id = {},
                     .keep_last = options.keep_last,
                     .keep_every = options.keep_every,
                     .keep_best = options.keep_best};
  const auto warn = [](std::string_view text) { log::warn(text); };
  const auto newest = find_newest_good(found.path, warn);
  if (!newest) fail(ErrorKind::data, "{}: none of its checkpoints is good", options.place);
  prune.run_id = newest->manifest().run_id;
  prune.trusted = {newest->step()};
  const std::vector<std::int64_t> steps = options.dry_run
                                              ? surplus_checkpoints(found.path, prune, warn)
                                              : prune_checkpoints(found.path, prune, warn);
  std::string text;
  for (const std::int64_t step : steps)
    text +=
        formatted("{}{}\n", options.dry_run ? "would delete " : "deleted ", step_folder_name(step));
  return text.empty() ? "nothing to delete\n" : text;
}

std::string export_command(const ExportCommand& options) {
  if (options.checkpoint.empty() || options.output.empty())
    fail(ErrorKind::usage, "export needs --checkpoint DIR and --output DIR");
  const auto dtype = dtype_from_name(options.dtype);
  if (!dtype) fail(ErrorKind::usage, "--dtype {}, must be one of f32, bf16, f16", options.dtype);
  const Checkpoint checkpoint = open_newest_good(options.checkpoint, options.allow_older);
  export_hf(checkpoint, options.output, {.dtype = *dtype});
  return formatted("{} -> {}\n", checkpoint.path().string(), options.output);
}

std::string import_command(const ImportCommand& options, Communicator& world) {
  if (options.hf.empty() || options.output.empty())
    fail(ErrorKind::usage, "import needs --hf DIR and --output DIR");
  if (!is_vacant(options.output)) {
    fail(ErrorKind::usage,
         "--output {} is not empty: weights are imported into a new run folder only",
         options.output);
  }
  return formatted("{} -> {}\n", options.hf,
                   import_hf(options.hf, fs::path(options.output) / "checkpoints", world).string());
}

}  // namespace trireme
