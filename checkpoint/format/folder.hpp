#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/error.hpp"

/// The folder that holds a run's checkpoints: `step-NNNNNNNNN` (committed), `.tmp-*` (being written
/// or left by a killed save), `.trash-*` (being deleted), `latest` (a hint).
namespace trireme {

/// Paths of all entries, sorted; empty if there is no such folder. Throws as fail_to_read:
/// resource for trouble with the machine, which is no reason to train on from older state.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

/// Steps of all entries named step-NNNNNNNNN, newest first, whatever they are: one that is no
/// folder is damaged (Checkpoint::open says so). Empty if the folder is absent.
std::vector<std::int64_t> list_steps(const std::filesystem::path& folder);

/// Deletes `.tmp-step-*` and `.trash-step-*`. Only the run's owner may call it,
/// while no save is in flight.
void remove_leftovers(const std::filesystem::path& folder);

/// Renames a committed checkpoint to `.trash-...`, then deletes it: a kill in
/// between leaves no half-deleted step.
void discard_step(const std::filesystem::path& folder, std::int64_t step);

/// Renames a damaged checkpoint to `damaged-step-...` (`.2`, `.3` where that exists), so that its
/// step can be saved again and a person can look at it. Returns the new place.
std::filesystem::path set_aside_step(const std::filesystem::path& folder, std::int64_t step);

/// A step folder, a folder of step folders, or a run folder (its `checkpoints`): the folder of step
/// folders, or `path` itself if it is one checkpoint; as an absolute path without links, so that
/// its last name is the folder's own. Throws Error(data) if it is none of these.
struct CheckpointPlace {
  std::filesystem::path path;
  bool is_step = false;  // path is one checkpoint
};

CheckpointPlace find_place(const std::filesystem::path& path);

/// The folder whose RunLock guards a folder of step folders: the run folder, or `checkpoints`
/// itself where it lies in none.
std::filesystem::path locked_folder(const std::filesystem::path& checkpoints);

}  // namespace trireme
