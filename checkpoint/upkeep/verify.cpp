#include "checkpoint/upkeep/verify.hpp"

#include <optional>
#include <set>

#include "checkpoint/disk/disk_reader.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/load/logical_reader.hpp"
#include "checkpoint/upkeep/slice_sums.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/hash/sha256.hpp"
#include "core/join.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Returns the damage of one file. `slices` is null unless the file is a shard.
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

constexpr char kBetweenNames = '/';  // never part of a name

/// Returns the names in the directory that the manifest does not list, each followed by
/// kBetweenNames. Skips names with a leading dot: NFS creates them for files that are deleted while
/// open.
std::string unnamed_entries(const Checkpoint& checkpoint) {
  std::set<std::string> known{kManifestName};
  for (const SavedFile& file : checkpoint.manifest().files) known.insert(file.name);
  for (const SavedFile& shard : checkpoint.manifest().shards) known.insert(shard.name);
  std::string names;
  for (const fs::path& entry : list_folder(checkpoint.path())) {
    const std::string name = entry.filename().string();
    if (!name.starts_with('.') && !known.contains(name)) names += name + kBetweenNames;
  }
  return names;
}

/// Returns damage for extra shards: they mean that parts of two checkpoints are mixed. Other files
/// (notes, editor backups) are only reported.
Damage judge_unnamed(const Checkpoint& checkpoint, const std::string& names, bool warns) {
  Damage damage;
  std::vector<std::string> foreign;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = names.find(kBetweenNames, begin);
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    if (name.starts_with("shard-")) {
      damage.push_back(name + ": not listed in the manifest");
    } else {
      foreign.push_back(name);
    }
  }
  if (warns && !foreign.empty()) {
    log::warn(formatted("{} contains files that its manifest does not list; they are ignored: {}",
                        checkpoint.path().string(), joined(foreign, ", ")));
  }
  return damage;
}

/// A check of one file of one checkpoint, or of the names in its directory.
struct CheckedPiece {
  std::size_t checkpoint = 0;
  std::size_t file = 0;
  const SavedFile* recorded = nullptr;  // null: the names in the directory
  bool is_shard = false;
};

std::vector<CheckedPiece> pieces_of(std::span<const Checkpoint> checkpoints) {
  std::vector<CheckedPiece> pieces;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointManifest& manifest = checkpoints[i].manifest();
    pieces.push_back({i});
    for (std::size_t j = 0; j < manifest.shards.size(); ++j)
      pieces.push_back({i, j, &manifest.shards[j], true});
    for (std::size_t j = 0; j < manifest.files.size(); ++j)
      pieces.push_back({i, j, &manifest.files[j], false});
  }
  return pieces;
}

std::string piece_damage(const Checkpoint& checkpoint, const CheckedPiece& piece) {
  std::optional<SliceSums> slices;
  if (piece.is_shard) slices.emplace(checkpoint.manifest(), piece.file);
  return file_damage(checkpoint.path(), *piece.recorded, slices ? &*slices : nullptr);
}

/// Hashes the row-major elements of a tensor, window by window.
void add_elements(const Checkpoint& checkpoint, const SavedTensor& tensor, Sha256& hash) {
  LogicalReader reader(checkpoint, tensor);
  for (auto window = reader.next(); !window.empty(); window = reader.next()) hash.update(window);
}

}  // namespace

std::string damage_text(const Damage& damage) {
  return joined(damage, "\n  ");
}

std::vector<Damage> find_damage(std::span<const Checkpoint> checkpoints, Communicator& world) {
  const std::vector<CheckedPiece> pieces = pieces_of(checkpoints);
  std::vector<std::uint64_t> bytes;
  for (const CheckedPiece& piece : pieces)
    bytes.push_back(piece.recorded == nullptr ? 0 : piece.recorded->bytes);
  const std::vector<std::string> found = share_work(world, bytes, [&](std::size_t i) {
    const Checkpoint& checkpoint = checkpoints[pieces[i].checkpoint];
    return pieces[i].recorded == nullptr ? unnamed_entries(checkpoint)
                                         : piece_damage(checkpoint, pieces[i]);
  });
  std::vector<Damage> damage(checkpoints.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t at = pieces[i].checkpoint;
    if (pieces[i].recorded == nullptr) {
      const Damage unnamed = judge_unnamed(checkpoints[at], found[i], world.rank() == 0);
      damage[at].insert(damage[at].end(), unnamed.begin(), unnamed.end());
    } else if (!found[i].empty()) {
      damage[at].push_back(found[i]);
    }
  }
  return damage;
}

Damage find_damage(const Checkpoint& checkpoint) {
  SelfCommunicator alone;
  return find_damage({&checkpoint, 1}, alone).front();
}

void check_undamaged(const Checkpoint& checkpoint, const Damage& damage) {
  if (!damage.empty())
    fail(ErrorKind::data, "{} is damaged:\n  {}", checkpoint.path().string(), damage_text(damage));
}

Checkpoint verify_checkpoint(const std::filesystem::path& folder) {
  Checkpoint checkpoint = Checkpoint::open(folder);
  check_undamaged(checkpoint, find_damage(checkpoint));
  return checkpoint;
}

std::string tensor_head(const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape) {
  std::string head = formatted("{}\n{}\n", name, dtype_name(dtype));
  for (const std::int64_t size : shape) head += formatted("{},", size);
  return head + "\n";
}

std::string hash_tensor(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.manifest().tensors.find(name);
  if (found == checkpoint.manifest().tensors.end())
    fail(ErrorKind::data, "{} holds no tensor {}", checkpoint.path().string(), name);
  Sha256 hash;
  hash.update(tensor_head(name, found->second.dtype, found->second.shape));
  add_elements(checkpoint, found->second, hash);
  return hash.hex();
}

std::string hash_tensors(const Checkpoint& checkpoint, Communicator& world,
                         std::string_view prefix) {
  check_undamaged(checkpoint, find_damage({&checkpoint, 1}, world).front());
  return hash_verified(checkpoint, world, prefix);
}

std::string hash_verified(const Checkpoint& checkpoint, Communicator& world,
                          std::string_view prefix) {
  std::vector<std::string> names;
  std::vector<std::uint64_t> bytes;
  for (const auto& [name, tensor] : checkpoint.manifest().tensors) {
    if (!name.starts_with(prefix)) continue;
    names.push_back(name);
    bytes.push_back(static_cast<std::uint64_t>(tensor.count()) * size_of(tensor.dtype));
  }
  const std::vector<std::string> hashes =
      share_work(world, bytes, [&](std::size_t i) { return hash_tensor(checkpoint, names[i]); });
  Sha256 hash;
  for (const std::string& one : hashes) hash.update(one + "\n");
  return hash.hex();
}

}  // namespace trireme
