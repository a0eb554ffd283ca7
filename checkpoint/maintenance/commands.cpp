#include "checkpoint/maintenance/commands.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "checkpoint/maintenance/diff.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/maintenance/reshard.hpp"
#include "checkpoint/maintenance/retention.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/rounded_text.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Returns the directories of one checkpoint, or of all checkpoints of a run (newest first), as
/// rank 0 sees them. Collective.
std::vector<fs::path> step_directories(const fs::path& place, comm::Communicator& world) {
  const CheckpointLocation found = locate_checkpoints(place, world);
  if (found.is_step) return {found.path};
  std::vector<fs::path> folders;
  for (const std::int64_t step : list_steps(found.path, world))
    folders.push_back(found.path / step_directory_name(step));
  return folders;
}

/// Returns the checkpoints of the frozen copies of a run, as rank 0 sees them. A frozen copy is a
/// directory of step directories in the run, such as RUN/base. Empty if `place` is not a run.
/// Collective.
std::vector<fs::path> frozen_step_directories(const fs::path& place, comm::Communicator& world) {
  const CheckpointLocation found = locate_checkpoints(place, world);
  if (found.is_step) return {};
  const fs::path run = found.path.parent_path();
  std::istringstream names(comm::text_of_first_rank(world, [&] {
    std::string text;
    if (fs::equivalent(place, found.path)) return text;
    for (const fs::path& entry : list_directory(run)) {
      if (entry != found.path && !list_steps(entry).empty())
        text += entry.filename().string() + "/";
    }
    return text;
  }));
  std::vector<fs::path> folders;
  for (std::string name; std::getline(names, name, '/');) {
    for (const std::int64_t step : list_steps(run / name, world))
      folders.push_back(run / name / step_directory_name(step));
  }
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
  return shape.empty() ? "scalar" : joined(shape, "x");
}

/// Throws Error(usage) if the directory contains entries that do not belong to checkpoints.
void check_may_hold_steps(const fs::path& directory) {
  constexpr std::array kOurs{".", "damaged-step-", "latest", "LOCK"};
  std::vector<fs::path> entries;
  (void)comm::capture([&] {
    entries = list_directory(directory);
  });  // ignore errors: a later step reports a directory that cannot be read
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    const bool ours =
        step_of_directory_name(name) >= 0 ||
        std::any_of(kOurs.begin(), kOurs.end(), [&](auto part) { return name.starts_with(part); });
    if (ours) continue;
    const fs::path inside = directory / "checkpoints";
    const bool is_run = !list_steps(inside).empty();
    fail(ErrorKind::usage,
         "--output {} contains '{}' and is not a directory of checkpoints: give {}",
         directory.string(), name, is_run ? inside.string() : "a new directory");
  }
}

}  // namespace

std::vector<ListedCheckpoint> checkpoint_list(const fs::path& place) {
  comm::SelfCommunicator alone;
  std::vector<ListedCheckpoint> all;
  for (const fs::path& directory : step_directories(place, alone)) {
    ListedCheckpoint& one = all.emplace_back();
    one.directory = directory;
    one.step = step_of_directory_name(directory.filename().string());
    std::optional<Checkpoint> checkpoint;
    if (const auto error = comm::capture([&] { checkpoint = Checkpoint::open(directory); })) {
      one.problem = error->what();
      continue;
    }
    const CheckpointManifest& manifest = checkpoint->manifest();
    one.bytes = total_bytes(manifest);
    one.tensors = manifest.tensors.size();
    one.shards = manifest.shards.size();
    one.run_id = manifest.run_id;
    if (const auto loss = manifest.values.find(kValidLossValue); loss != manifest.values.end())
      one.valid_loss = parse_number(loss->second);
  }
  return all;
}

std::string list_text(std::span<const ListedCheckpoint> checkpoints) {
  std::string text;
  for (const ListedCheckpoint& one : checkpoints) {
    text += one.directory.filename().string() + "  ";
    if (!one.problem.empty()) {
      text += formatted("damaged: {}\n", one.problem);
      continue;
    }
    text += formatted("{}  {}  {}  run {}", format_bytes(one.bytes), counted(one.tensors, "tensor"),
                      counted(one.shards, "shard"), one.run_id);
    if (one.valid_loss) text += formatted("  valid loss {}", rounded_text(*one.valid_loss));
    text += '\n';
  }
  return text;
}

Json list_json(std::span<const ListedCheckpoint> checkpoints) {
  Json all;
  Json& list = all["checkpoints"] = Json::array();
  for (const ListedCheckpoint& one : checkpoints) {
    Json& json = list.emplace_back();
    json["step"] = one.step;
    json["path"] = one.directory.string();
    if (!one.problem.empty()) {
      json["problem"] = one.problem;
      continue;
    }
    json["bytes"] = static_cast<std::uint64_t>(one.bytes);
    json["tensors"] = one.tensors;
    json["shards"] = one.shards;
    json["run"] = one.run_id;
    json["valid_loss"] = one.valid_loss ? Json(*one.valid_loss) : Json();
  }
  return all;
}

std::string checkpoint_verify(const fs::path& place, comm::Communicator& world) {
  std::vector<fs::path> folders = step_directories(place, world);
  const std::size_t num_own = folders.size();
  std::ranges::copy(frozen_step_directories(place, world), std::back_inserter(folders));
  std::vector<Checkpoint> opened;
  std::vector<std::string> problems;  // one per directory; "": no problem
  for (const fs::path& directory : folders) {
    const auto error = comm::capture([&] { opened.push_back(Checkpoint::open(directory, world)); });
    if (error && error->kind() != ErrorKind::data) throw Error(*error);
    problems.emplace_back(error ? error->what() : "");
  }
  const std::vector<Damage> damage = find_damage(opened, world);
  return comm::text_of_first_rank(world, [&] {
    std::string text;
    std::vector<std::string> good;  // names
    std::vector<std::string> bad;   // problems
    std::size_t next = 0;           // index in `opened`
    for (std::size_t i = 0; i < folders.size(); ++i) {
      std::string problem = problems[i];
      if (problem.empty()) {
        const Checkpoint& checkpoint = opened[next];
        const auto error = comm::capture([&] { check_undamaged(checkpoint, damage[next]); });
        ++next;
        if (!error) {
          const fs::path from = folders[i].parent_path();
          good.push_back(
              folders[i].lexically_relative(i < num_own ? from : from.parent_path()).string());
          text += formatted("{}  good, {}\n", good.back(),
                            format_bytes(total_bytes(checkpoint.manifest())));
          continue;
        }
        problem = error->what();
      }
      std::error_code code;
      if (!fs::exists(folders[i], code)) continue;  // a running job has pruned it
      bad.push_back(problem);
    }
    if (bad.empty()) return text;
    const std::string others = good.empty() ? "" : cat("\ngood: ", joined(good, ", "));
    throw Error(ErrorKind::data, joined(bad, "\n") + others);
  });
}

std::string checkpoint_hash(const fs::path& place, comm::Communicator& world, bool allow_older) {
  if (is_hf_directory(place, world)) return hash_model(place, world) + "\n";
  return hash_tensors(open_newest_good(place, world, allow_older), world) + "\n";
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

std::string checkpoint_reshard(const ReshardCommand& options, comm::Communicator& world) {
  if ((options.ranks > 0) == !options.layout.empty() || options.ranks < 0)
    fail(ErrorKind::usage,
         "checkpoint reshard needs either --ranks N (at least 1) or --layout FILE");
  const Checkpoint from = open_newest_good(options.from, world, options.allow_older);
  ReshardLayout layout;
  if (options.layout.empty()) {
    layout = spread_layout(from.manifest(), options.ranks);
  } else {
    const std::string text =
        comm::text_of_first_rank(world, [&] { return read_file(options.layout); });
    layout = parse_layout(text, options.layout, from.manifest());
  }
  std::optional<RunLock> lock;  // rank 0 holds it for all ranks
  comm::on_first_rank(world, [&] {
    check_may_hold_steps(options.output);
    lock.emplace(locked_directory(options.output), RunLockOptions{});
  });
  const fs::path written = reshard_checkpoint(from, layout, options.output, world);
  return formatted("{} -> {}\n", from.path().string(), written.string());
}

std::string checkpoint_prune(const PruneCommand& options) {
  PruneOptions prune{.run_id = {},
                     .keep_last = options.keep_last,
                     .keep_every = options.keep_every,
                     .keep_best = options.keep_best};
  check_prune_options(prune, {"--keep-last", "--keep-every", "--keep-best"});
  const CheckpointLocation found = locate_checkpoints(options.place);
  if (found.is_step)
    fail(ErrorKind::usage,
         "{} is one checkpoint; prune takes a run directory, or the directory of its checkpoints",
         options.place);
  std::optional<RunLock> lock;
  if (!options.dry_run) lock.emplace(locked_directory(found.path), RunLockOptions{});
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
    text += formatted("{}{}\n", options.dry_run ? "would delete " : "deleted ",
                      step_directory_name(step));
  return text.empty() ? "nothing to delete\n" : text;
}

}  // namespace trireme::checkpoint
