#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/upkeep/newest.hpp"

namespace trireme {

struct PruneOptions {
  std::string run_id;
  std::int64_t keep_last = 2;   // at least 1 good ones stay, the newest
  std::int64_t keep_every = 0;  // steps divisible by it stay forever; 0: none
  std::int64_t keep_best = 0;   // of all, those with the lowest validation loss (kValidLossValue)
  /// Steps this process has itself saved or verified: their sizes are checked, not read again.
  std::vector<std::int64_t> trusted = {};
};

/// The steps that prune_checkpoints would delete, newest first; deletes nothing.
std::vector<std::int64_t> surplus_checkpoints(const std::filesystem::path& folder,
                                              const PruneOptions& options, const WarningSink& warn);

/// Deletes checkpoints older than the newest `keep_last` good ones, but keeps every `keep_every`-th
/// step and the `keep_best` good ones of the lowest validation loss, the newer of two equals.
/// Damaged ones do not count, and are deleted only when older than those; checkpoints of another
/// run, and what cannot be read, are never touched. Returns the deleted steps, newest first. Only
/// the run's owner may call it. Throws Error(usage) for keep_last < 1 or a negative number,
/// Error(resource) when the disk refuses.
std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& folder,
                                            const PruneOptions& options, const WarningSink& warn);

}  // namespace trireme
