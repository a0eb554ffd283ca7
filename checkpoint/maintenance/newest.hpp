#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

/// Opens the checkpoint that a path names: one directory, or the newest good checkpoint of a run.
namespace trireme::checkpoint {

using WarningSink = std::function<void(std::string_view)>;

/// A checkpoint that was skipped because it is damaged, and the damage.
struct SkippedStep {
  std::int64_t step = 0;
  std::string reason;
};

/// Returns the newest undamaged checkpoint in `directory`; nullopt if there is none. Verifies every
/// byte and warns about each newer checkpoint that is damaged. If the machine fails (which is not
/// damage), throws Error(resource) and does not fall back to an older checkpoint.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& directory,
                                           const WarningSink& warn);

/// Like find_newest_good above, but the ranks split the files. Only rank 0 calls `warn`.
/// Collective.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& directory,
                                           comm::Communicator& world, const WarningSink& warn);

/// Opens the checkpoint that `place` names, for generate, serve and export: a step directory, or
/// the newest checkpoint of a run. A step directory is verified later, while it is read; the
/// checkpoint of a run is verified in this call. If the newest checkpoint is damaged, throws
/// Error(data) that names the damage and the newest good checkpoint. With `allow_older`, instead
/// returns the newest good checkpoint and logs a warning for each skipped one.
Checkpoint open_newest_good(const std::filesystem::path& place, bool allow_older = false);

/// Like open_newest_good above. Returns or throws the same on all ranks. Collective.
Checkpoint open_newest_good(const std::filesystem::path& place, comm::Communicator& world,
                            bool allow_older = false);

/// Return the result of rank 0 on all ranks, because other nodes may see a new directory later than
/// rank 0. Collective.
CheckpointLocation locate_checkpoints(const std::filesystem::path& path, comm::Communicator& world);
std::vector<std::int64_t> list_steps(const std::filesystem::path& directory,
                                     comm::Communicator& world);

}  // namespace trireme::checkpoint
