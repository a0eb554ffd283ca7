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

/// Which checkpoint a place means: one folder, or the newest good one of a run.
namespace trireme {

using WarningSink = std::function<void(std::string_view)>;

/// A checkpoint that was passed over for an older one, and why.
struct SkippedStep {
  std::int64_t step = 0;
  std::string reason;
};

/// The newest checkpoint in `folder` whose every byte is as recorded; older ones are tried when a
/// newer one is damaged, with a warning that says which and why. Nothing if the folder holds no
/// good one. Throws Error(resource) for trouble with the machine: no reason to take older state.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder,
                                           const WarningSink& warn);

/// Collective: the same on all ranks, files shared out among them; rank 0 warns.
std::optional<Checkpoint> find_newest_good(const std::filesystem::path& folder, Communicator& world,
                                           const WarningSink& warn);

/// The checkpoint that `place` means, for generate, serve, export: a step folder as it is (its
/// content is verified while it is read), or the newest of a run, verified. Throws Error(data) that
/// names damage and the newest good one, or with `allow_older` takes that, with a warning on the
/// log for each one passed over.
Checkpoint open_newest_good(const std::filesystem::path& place, bool allow_older = false);

/// Collective: the same on all ranks.
Checkpoint open_newest_good(const std::filesystem::path& place, Communicator& world,
                            bool allow_older = false);

/// Collective: as rank 0 sees them, for another node may see a folder a moment later.
CheckpointPlace find_place(const std::filesystem::path& path, Communicator& world);
std::vector<std::int64_t> list_steps(const std::filesystem::path& folder, Communicator& world);

}  // namespace trireme
