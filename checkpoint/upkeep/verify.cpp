#include "checkpoint/upkeep/verify.hpp"

#include <algorithm>
#include <set>

#include "checkpoint/disk/disk_reader.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/load/logical_reader.hpp"
#include "checkpoint/upkeep/slice_sums.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/hash/sha256.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n  ") + line;
  return text;
}

/// `slices`: of a shard, else null.
std::string file_damage(const fs::path& folder, const SavedFile& file, SliceSums* slices) {
  std::string damage;
  const auto error = capture([&] {
    const std::string computed = hash_recorded(folder, file, [&](std::span<const std::byte> bytes) {
      if (slices != nullptr) slices->update(bytes);
    });
    if (computed != file.hash) {
      damage =
          formatted("{}: its hash is {}, the manifest says {}", file.name, computed, file.hash);
    } else if (const std::string problem = slices != nullptr ? slices->problem() : "";
               !problem.empty()) {
      damage = formatted("{}: {}", file.name, problem);
    }
  });
  if (error && error->kind() != ErrorKind::data) throw Error(*error);
  return error ? error->what() : damage;
}

std::vector<std::string> unknown_entries(const Checkpoint& checkpoint) {
  std::set<std::string> known{kManifestName};
  for (const SavedFile& file : checkpoint.manifest().files) known.insert(file.name);
  for (const SavedFile& shard : checkpoint.manifest().shards) known.insert(shard.name);
  std::vector<std::string> unknown;
  for (const fs::path& entry : list_folder(checkpoint.path())) {
    const std::string name = entry.filename().string();
    // A leading dot: what NFS makes of a file deleted while open.
    if (!name.starts_with('.') && !known.contains(name))
      unknown.push_back(name + ": not named by the manifest");
  }
  return unknown;
}

/// A checkpoint that opens and has no damage in this rank's share; else why not.
struct Candidate {
  std::optional<Checkpoint> checkpoint;
  std::optional<Error> error;
};

Candidate try_step(const fs::path& folder, int rank, int size) {
  Candidate candidate;
  candidate.error = capture([&] {
    candidate.checkpoint = Checkpoint::open(folder);
    const std::vector<std::string> damage = find_damage(*candidate.checkpoint, rank, size);
    if (!damage.empty()) throw Error(ErrorKind::data, joined(damage));
  });
  return candidate;
}

/// Trouble with the machine is no reason to train on from older state.
void require_damage(const Error& error) {
  if (error.kind() != ErrorKind::data) throw error;
}

void warn_skipped(const WarningSink& warn, std::int64_t step, const std::string& reason) {
  warn(formatted("checkpoint {} is not usable, trying the one before: {}", step_folder_name(step),
                 reason));
}

/// Feeds a tensor's row-major elements to `hash`, one window after another.
void add_elements(const Checkpoint& checkpoint, const SavedTensor& tensor, Sha256& hash) {
  LogicalReader reader(checkpoint, tensor);
  for (auto window = reader.next(); !window.empty(); window = reader.next()) hash.update(window);
}

}  // namespace

std::vector<std::string> find_damage(const Checkpoint& checkpoint, int rank, int size) {
  std::vector<std::string> damage;
  if (rank == 0) damage = unknown_entries(checkpoint);
  const CheckpointManifest& manifest = checkpoint.manifest();
  const std::size_t num_shards = manifest.shards.size();
  for (auto i = static_cast<std::size_t>(rank); i < num_shards + manifest.files.size();
       i += static_cast<std::size_t>(size)) {
    const bool is_shard = i < num_shards;
    std::optional<SliceSums> slices;
    if (is_shard) slices.emplace(manifest, i);
    std::string one = file_damage(checkpoint.path(),
                                  is_shard ? manifest.shards[i] : manifest.files[i - num_shards],
                                  slices ? &*slices : nullptr);
    if (!one.empty()) damage.push_back(std::move(one));
  }
  return damage;
}

Checkpoint verify_checkpoint(const std::filesystem::path& folder) {
  Checkpoint checkpoint = Checkpoint::open(folder);
  const std::vector<std::string> damage = find_damage(checkpoint);
  if (!damage.empty())
    fail(ErrorKind::data, "{} is damaged:\n  {}", folder.string(), joined(damage));
  return checkpoint;
}

std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           std::vector<SkippedStep>& skipped) {
  for (const std::int64_t step : list_steps(folder)) {
    Candidate candidate = try_step(folder / step_folder_name(step), 0, 1);
    if (!candidate.error) return candidate.checkpoint;
    require_damage(*candidate.error);
    skipped.push_back({step, candidate.error->what()});
  }
  return std::nullopt;
}

std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           const WarningSink& warn) {
  std::vector<SkippedStep> skipped;
  auto found = find_newest_good(folder, skipped);
  for (const SkippedStep& one : skipped) warn_skipped(warn, one.step, one.reason);
  return found;
}

std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder, Communicator& world,
                                           const WarningSink& warn) {
  std::string names;  // rank 0's view: other nodes may see the folder a moment later
  agree(world, capture([&] {
          if (world.rank() != 0) return;
          for (const std::int64_t step : list_steps(folder)) names += step_folder_name(step);
        }));
  names = broadcast_text(world, names);
  const std::size_t length = step_folder_name(0).size();
  for (std::size_t at = 0; at < names.size(); at += length) {
    const std::string name = names.substr(at, length);
    Candidate candidate = try_step(folder / name, world.rank(), world.size());
    std::optional<Error> shared;
    try {
      agree(world, candidate.error);
      return candidate.checkpoint;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::comm) throw;
      shared = error;
    }
    require_damage(*shared);
    if (world.rank() == 0) warn_skipped(warn, step_of_folder_name(name), shared->what());
  }
  return std::nullopt;
}

std::string hash_tensor(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.manifest().tensors.find(name);
  if (found == checkpoint.manifest().tensors.end())
    fail(ErrorKind::data, "{} holds no tensor {}", checkpoint.path().string(), name);
  Sha256 hash;
  std::string head = formatted("{}\n{}\n", name, dtype_name(found->second.dtype));
  for (const std::int64_t size : found->second.shape) head += formatted("{},", size);
  hash.update(head + "\n");
  add_elements(checkpoint, found->second, hash);
  return hash.hex();
}

std::string hash_tensors(const Checkpoint& checkpoint) {
  const std::vector<std::string> damage = find_damage(checkpoint);
  if (!damage.empty())
    fail(ErrorKind::data, "{} is damaged:\n  {}", checkpoint.path().string(), joined(damage));
  Sha256 hash;
  for (const auto& [name, tensor] : checkpoint.manifest().tensors)
    hash.update(hash_tensor(checkpoint, name) + "\n");
  return hash.hex();
}

}  // namespace trireme
