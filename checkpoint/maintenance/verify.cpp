#include "checkpoint/maintenance/verify.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "checkpoint/disk/disk_reader.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/load/logical_reader.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/hash/crc32c.hpp"
#include "core/hash/sha256.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

bool has_checksum(const SavedSlice& slice) {
  return slice.hash.size() == kChecksumDigits;
}

/// Checks the slices of one shard while its bytes are read from start to end. This finds a slice at
/// a wrong position, even if the hashes of the manifest and of the file are correct.
class SliceSums {
 public:
  /// `shard`: index into manifest.shards. The manifest must outlive this object.
  SliceSums(const CheckpointManifest& manifest, std::uint64_t shard) {
    for (const auto& [name, tensor] : manifest.tensors) {
      for (const SavedSlice& slice : tensor.slices) {
        const std::uint64_t bytes =
            static_cast<std::uint64_t>(slice.part.count()) * size_of(tensor.dtype);
        if (slice.shard == shard && bytes > 0)
          parts_.push_back({slice.at, slice.at + bytes, &name, &slice, ""});
      }
    }
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    for (std::size_t i = 1; i < parts_.size() && overlap_.empty(); ++i) {
      if (parts_[i].begin < parts_[i - 1].end)
        overlap_ = formatted("{} and {} share bytes", *parts_[i - 1].tensor, *parts_[i].tensor);
    }
    if (!overlap_.empty()) parts_.clear();
  }

  /// Processes the next bytes of the file.
  void update(std::span<const std::byte> bytes) {
    const std::uint64_t end = at_ + bytes.size();
    for (; current_ < parts_.size() && parts_[current_].begin < end; ++current_) {
      const Part& part = parts_[current_];
      const std::uint64_t from = std::max(at_, part.begin);
      const std::uint64_t to = std::min(end, part.end);
      const auto mine =
          bytes.subspan(static_cast<std::size_t>(from - at_), static_cast<std::size_t>(to - from));
      if (has_checksum(*part.slice)) {
        checksum_ = crc32c(mine, checksum_);
      } else {
        hasher_.update(mine);
      }
      if (part.end > end) break;
      finish_part();
    }
    at_ = end;
  }

  /// Describes the first slice that has a wrong checksum or overlaps another slice; "" if there is
  /// none. Call it after all bytes.
  [[nodiscard]] std::string problem() const {
    if (!overlap_.empty()) return overlap_;
    for (const Part& part : parts_) {
      if (part.sum == part.slice->hash) continue;
      return formatted("a slice of tensor {} at byte {} has the checksum {}, the manifest says {}",
                       *part.tensor, part.begin, part.sum, part.slice->hash);
    }
    return "";
  }

 private:
  struct Part {
    std::uint64_t begin = 0;  // byte position in the file
    std::uint64_t end = 0;
    const std::string* tensor = nullptr;
    const SavedSlice* slice = nullptr;
    std::string sum;  // checksum; set when all bytes were seen
  };

  void finish_part() {
    Part& part = parts_[current_];
    if (has_checksum(*part.slice)) {
      part.sum = crc32c_hex(checksum_);
      checksum_ = 0;
    } else {
      part.sum = hasher_.hex();
      hasher_ = Hasher();
    }
  }

  std::vector<Part> parts_;  // sorted by begin
  std::string overlap_;
  std::size_t current_ = 0;  // the part that contains the next byte
  std::uint64_t at_ = 0;     // byte position in the file
  std::uint32_t checksum_ = 0;
  Hasher hasher_;
};

/// Returns the damage of one file. `slices` is null unless the file is a shard.
std::string file_damage(const fs::path& directory, const SavedFile& file, SliceSums* slices) {
  std::string damage;
  const auto error = comm::capture([&] {
    const std::string computed =
        hash_recorded(directory, file, [&](std::span<const std::byte> bytes) {
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

constexpr char kBetweenNames = '/';  // a file name never contains it

/// Returns the names in the directory that the manifest does not list, each followed by
/// kBetweenNames. Skips names with a leading dot: NFS creates them for files that are deleted while
/// open.
std::string unlisted_entries(const Checkpoint& checkpoint) {
  std::set<std::string> known{kManifestName};
  for (const SavedFile& file : checkpoint.manifest().files) known.insert(file.name);
  for (const SavedFile& shard : checkpoint.manifest().shards) known.insert(shard.name);
  std::string names;
  for (const fs::path& entry : list_directory(checkpoint.path())) {
    const std::string name = entry.filename().string();
    if (!name.starts_with('.') && !known.contains(name)) names += name + kBetweenNames;
  }
  return names;
}

/// Returns extra shards as damage, because they show that parts of two checkpoints are mixed. Other
/// extra files (notes, editor backups) only give a warning.
Damage check_unlisted(const Checkpoint& checkpoint, const std::string& names, bool warns) {
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

/// One unit of work: the check of one file of a checkpoint, or of the names in its directory.
struct CheckedItem {
  std::size_t checkpoint = 0;
  std::size_t file = 0;
  const SavedFile* recorded = nullptr;  // null: the names in the directory
  bool is_shard = false;
};

std::vector<CheckedItem> items_of(std::span<const Checkpoint> checkpoints) {
  std::vector<CheckedItem> items;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointManifest& manifest = checkpoints[i].manifest();
    items.push_back({i});
    for (std::size_t j = 0; j < manifest.shards.size(); ++j)
      items.push_back({i, j, &manifest.shards[j], true});
    for (std::size_t j = 0; j < manifest.files.size(); ++j)
      items.push_back({i, j, &manifest.files[j], false});
  }
  return items;
}

std::string item_damage(const Checkpoint& checkpoint, const CheckedItem& item) {
  std::optional<SliceSums> slices;
  if (item.is_shard) slices.emplace(checkpoint.manifest(), item.file);
  return file_damage(checkpoint.path(), *item.recorded, slices ? &*slices : nullptr);
}

/// Returns the SHA-256 of one logical tensor of a verified checkpoint. Hashes name, dtype, shape
/// and the elements in row-major order, so the hash does not depend on the layout. Needs a buffer
/// of 64 MiB, also for larger tensors.
std::string hash_tensor(const Checkpoint& checkpoint, const std::string& name,
                        const SavedTensor& tensor) {
  Sha256 hash;
  hash.update(tensor_head(name, tensor.dtype, tensor.shape));
  LogicalReader reader(checkpoint, tensor);
  for (auto window = reader.next(); !window.empty(); window = reader.next()) hash.update(window);
  return hash.hex();
}

}  // namespace

std::string damage_text(const Damage& damage) {
  return joined(damage, "\n  ");
}

std::vector<Damage> find_damage(std::span<const Checkpoint> checkpoints,
                                comm::Communicator& world) {
  const std::vector<CheckedItem> items = items_of(checkpoints);
  std::vector<std::uint64_t> bytes;
  for (const CheckedItem& item : items)
    bytes.push_back(item.recorded == nullptr ? 0 : item.recorded->bytes);
  const double all_bytes = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  Progress progress("verify checkpoints", all_bytes / world.size(), Progress::Unit::bytes);
  const std::vector<std::string> found = comm::distribute_work(world, bytes, [&](std::size_t i) {
    const Checkpoint& checkpoint = checkpoints[items[i].checkpoint];
    std::string damage = items[i].recorded == nullptr ? unlisted_entries(checkpoint)
                                                      : item_damage(checkpoint, items[i]);
    progress.add(static_cast<double>(bytes[i]));
    return damage;
  });
  std::vector<Damage> damage(checkpoints.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t at = items[i].checkpoint;
    if (items[i].recorded == nullptr) {
      const Damage unlisted = check_unlisted(checkpoints[at], found[i], world.rank() == 0);
      damage[at].insert(damage[at].end(), unlisted.begin(), unlisted.end());
    } else if (!found[i].empty()) {
      damage[at].push_back(found[i]);
    }
  }
  return damage;
}

Damage find_damage(const Checkpoint& checkpoint) {
  comm::SelfCommunicator alone;
  return find_damage({&checkpoint, 1}, alone).front();
}

void check_undamaged(const Checkpoint& checkpoint, const Damage& damage) {
  if (!damage.empty())
    fail(ErrorKind::data, "{} is damaged:\n  {}", checkpoint.path().string(), damage_text(damage));
}

Checkpoint verify_checkpoint(const std::filesystem::path& directory) {
  Checkpoint checkpoint = Checkpoint::open(directory);
  check_undamaged(checkpoint, find_damage(checkpoint));
  return checkpoint;
}

std::string tensor_head(const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape) {
  std::string head = formatted("{}\n{}\n", name, dtype_name(dtype));
  for (const std::int64_t size : shape) head += formatted("{},", size);
  return head + "\n";
}

std::string hash_tensors(const Checkpoint& checkpoint, comm::Communicator& world,
                         std::string_view prefix) {
  check_undamaged(checkpoint, find_damage({&checkpoint, 1}, world).front());
  return hash_verified(checkpoint, world, prefix);
}

std::string hash_verified(const Checkpoint& checkpoint, comm::Communicator& world,
                          std::string_view prefix) {
  std::vector<std::string> names;
  std::vector<std::uint64_t> bytes;
  for (const auto& [name, tensor] : checkpoint.manifest().tensors) {
    if (!name.starts_with(prefix)) continue;
    names.push_back(name);
    bytes.push_back(static_cast<std::uint64_t>(tensor.count()) * size_of(tensor.dtype));
  }
  const double all_bytes = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  Progress progress("hash tensors", all_bytes / world.size(), Progress::Unit::bytes);
  const std::vector<std::string> hashes = comm::distribute_work(world, bytes, [&](std::size_t i) {
    std::string hash =
        hash_tensor(checkpoint, names[i], checkpoint.manifest().tensors.at(names[i]));
    progress.add(static_cast<double>(bytes[i]));
    return hash;
  });
  Sha256 hash;
  for (const std::string& one : hashes) hash.update(one + "\n");
  return hash.hex();
}

}  // namespace trireme::checkpoint
