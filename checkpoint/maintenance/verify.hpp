#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

namespace trireme::checkpoint {

/// The damage of one checkpoint, one line per file; empty if the checkpoint is good. In a good
/// checkpoint, every file is a regular file with the recorded size and hash, and every slice has
/// the recorded checksum. The directory has no shard that the manifest does not name. A failure of
/// the machine is not damage: then the functions throw Error(resource).
using Damage = std::vector<std::string>;

Damage find_damage(const Checkpoint& checkpoint);

/// Checks several checkpoints. The ranks split their files by bytes. Collective.
std::vector<Damage> find_damage(std::span<const Checkpoint> checkpoints, comm::Communicator& world);

/// Throws Error(data) that lists all damage if `damage` is not empty.
void check_undamaged(const Checkpoint& checkpoint, const Damage& damage);

/// Opens a checkpoint and checks all bytes. Throws Error(data) listing all damage.
Checkpoint verify_checkpoint(const std::filesystem::path& directory);

/// Formats damage as the lines of one message: "a\n  b".
std::string damage_text(const Damage& damage);

/// Returns the text (name, dtype, shape) that hash_tensors() hashes before the elements of a
/// tensor.
std::string tensor_head(const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape);

/// Returns the SHA-256 of the hashes of all tensors (one per line, in name order). Two checkpoints,
/// which may have different layouts, have equal hashes exactly if all tensors are equal. Hashes
/// only tensors with the name prefix `prefix` ("param/"). Verifies the whole checkpoint first; the
/// ranks split the tensors by bytes. Collective. Throws Error(data) for damage.
std::string hash_tensors(const Checkpoint& checkpoint, comm::Communicator& world,
                         std::string_view prefix = "");

/// Like hash_tensors(), but does not verify the checkpoint. For a checkpoint that was verified
/// before (find_newest_good).
std::string hash_verified(const Checkpoint& checkpoint, comm::Communicator& world,
                          std::string_view prefix = "");

}  // namespace trireme::checkpoint
