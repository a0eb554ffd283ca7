#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load.hpp"
#include "comm/communicator.hpp"

namespace trireme {

using WarningSink = std::function<void(std::string_view)>;

/// This rank's share (every size-th file) of a check of all files: present, regular, of the
/// recorded size and hash, and nothing in the folder that the manifest does not name. Plain reads.
/// Empty: all good.
std::vector<std::string> find_damage(const Checkpoint& checkpoint, int rank = 0, int size = 1);

/// Opens and checks everything. Throws Error(data) listing all damage.
Checkpoint verify_checkpoint(const std::filesystem::path& folder);

/// The newest checkpoint in `folder` whose every byte is as recorded; older ones are tried when a
/// newer one is damaged, with a warning that says which and why. Nothing if the folder holds no
/// good one.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           const WarningSink& warn);

/// Collective: the same on all ranks, files shared out among them; rank 0 warns.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           Communicator& world,
                                           const WarningSink& warn);

/// One hash of all logical tensors: name, dtype, shape and row-major elements in name order. The
/// same for every layout. Reads and verifies everything; memory: one window of 64 MiB, whatever the
/// tensors' sizes.
std::string hash_tensors(const Checkpoint& checkpoint);

}  // namespace trireme
