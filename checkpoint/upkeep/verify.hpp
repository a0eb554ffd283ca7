#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

namespace trireme {

using WarningSink = std::function<void(std::string_view)>;

/// This rank's share (every size-th file) of a check of all files: present, regular, of the
/// recorded size and hash, every slice of the recorded sum, and nothing in the folder that the
/// manifest does not name. Plain reads. Empty: all good. Throws Error(resource) for trouble with
/// the machine, which is no damage.
std::vector<std::string> find_damage(const Checkpoint& checkpoint, int rank = 0, int size = 1);

/// Opens and checks everything. Throws Error(data) listing all damage.
Checkpoint verify_checkpoint(const std::filesystem::path& folder);

/// A checkpoint that was passed over for an older one, and why.
struct SkippedStep {
  std::int64_t step = 0;
  std::string reason;
};

/// The newest checkpoint in `folder` whose every byte is as recorded; older ones
/// are tried when a newer one is damaged, with a warning that says which and why.
/// Nothing if the folder holds no good one.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           const WarningSink& warn);

/// The same for a caller that has its own mind about newer ones that are damaged.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           std::vector<SkippedStep>& skipped);

/// Collective: the same on all ranks, files shared out among them; rank 0 warns.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder, Communicator& world,
                                           const WarningSink& warn);

/// SHA-256 of one logical tensor of a checkpoint that was verified before: name, dtype, shape and
/// row-major elements, so the same for every layout. Memory: a window of 64 MiB, whatever the size.
/// Throws Error(data) if there is no such tensor.
std::string hash_tensor(const Checkpoint& checkpoint, const std::string& name);

/// SHA-256 of the hashes of all tensors, a line each, in name order: equal for two checkpoints of
/// any layouts exactly when every tensor is. Verifies everything first; throws Error(data).
std::string hash_tensors(const Checkpoint& checkpoint);

}  // namespace trireme
