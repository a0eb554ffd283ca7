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

/// A damaged checkpoint that was skipped, with the reason.
struct SkippedStep {
  std::int64_t step = 0;
  std::string reason;
};

/// Returns the newest undamaged checkpoint in `directory`; nullopt if there is none. Verifies every
/// byte and warns about each newer checkpoint that is damaged. Throws Error(resource) for a failure
/// of the machine, which is no reason to use older state.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& directory,
                                           const WarningSink& warn);

/// Like find_newest_good above. The ranks split the files; rank 0 warns. Collective.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& directory,
                                           comm::Communicator& world, const WarningSink& warn);

/// Opens the checkpoint that `place` names, for generate, serve and export: a step directory
/// (verified while it is read) or the newest checkpoint of a run (verified now). If the newest one
/// is damaged, throws Error(data) that names the damage and the newest good checkpoint. With
/// `allow_older`, takes that checkpoint and logs a warning for each skipped one.
Checkpoint open_newest_good(const std::filesystem::path& place, bool allow_older = false);

/// Returns or throws the same on all ranks. Collective.
Checkpoint open_newest_good(const std::filesystem::path& place, comm::Communicator& world,
                            bool allow_older = false);

/// Returns the result of rank 0, because another node may see a new directory later. Collective.
CheckpointLocation locate_checkpoints(const std::filesystem::path& path, comm::Communicator& world);
std::vector<std::int64_t> list_steps(const std::filesystem::path& directory,
                                     comm::Communicator& world);

}  // namespace trireme::checkpoint
