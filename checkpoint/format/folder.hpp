#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.hpp"

/// A run's checkpoint directory contains `step-NNNNNNNNN` (committed), `.tmp-*` (being written or
/// left by a killed save), `.trash-*` (being deleted) and `latest` (a hint).
namespace trireme::checkpoint {

/// Returns the paths of all entries, sorted; empty if the directory does not exist. Throws like
/// fail_to_read: a failure of the machine (resource) is no reason to resume from older state.
std::vector<std::filesystem::path> list_directory(const std::filesystem::path& directory);

/// Returns the steps of all entries named step-NNNNNNNNN, newest first; empty if the directory does
/// not exist. An entry that is not a directory is also listed; Checkpoint::open refuses it.
std::vector<std::int64_t> list_steps(const std::filesystem::path& directory);

/// Deletes `.tmp-step-*` and `.trash-step-*`. Only the owner of the run may call it, and only while
/// no save is in flight.
void remove_leftovers(const std::filesystem::path& directory);

/// Renames a committed checkpoint to `.trash-...`, then deletes it. A kill in between leaves no
/// half-deleted step.
void discard_step(const std::filesystem::path& directory, std::int64_t step);

/// Renames a damaged checkpoint to `damaged-step-...` (`.2`, `.3` if that exists), so that its step
/// can be saved again and the damage can be inspected. Returns the new path.
std::filesystem::path set_aside_step(const std::filesystem::path& directory, std::int64_t step);

/// The result of locate_checkpoints: the directory of step directories, or one checkpoint.
struct CheckpointLocation {
  std::filesystem::path path;
  bool is_step = false;  // true: `path` is one checkpoint
};

/// Finds the checkpoints that a user's path names: a step directory, a directory of step
/// directories or a run directory (its `checkpoints`). Returns an absolute path without symbolic
/// links. Throws Error(data) for any other path.
CheckpointLocation locate_checkpoints(const std::filesystem::path& path);

/// Returns what a path is that is not a checkpoint, and the command that reads it: a data set, a
/// directory of adapters, a Hugging Face directory or a weight file. Returns "" for other paths.
std::string advice_for(const std::filesystem::path& place);

/// Returns the directory that RunLock locks for a directory of step directories: the run directory,
/// or `checkpoints` itself if there is no run directory.
std::filesystem::path locked_directory(const std::filesystem::path& checkpoints);

}  // namespace trireme::checkpoint
