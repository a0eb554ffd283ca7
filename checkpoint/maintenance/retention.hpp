#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/maintenance/newest.hpp"

namespace trireme::checkpoint {

struct PruneOptions {
  std::string run_id;
  std::int64_t keep_last = 2;   // number of newest good checkpoints to keep, at least 1
  std::int64_t keep_every = 0;  // keep all steps divisible by this number; 0: none
  std::int64_t keep_best = 0;   // number of checkpoints to keep with the lowest kValidLossValue
  /// Steps that this process has saved or verified: only the sizes of their files are checked.
  std::vector<std::int64_t> trusted = {};
};

/// Returns the steps that prune_checkpoints would delete, newest first. Deletes nothing.
std::vector<std::int64_t> surplus_checkpoints(const std::filesystem::path& directory,
                                              const PruneOptions& options, const WarningSink& warn);

/// Deletes checkpoints older than the newest `keep_last` good ones, except every `keep_every`-th
/// step and the `keep_best` good ones with the lowest validation loss (the newer of two equals).
/// Damaged checkpoints do not count and are deleted only if they are older than the kept ones.
/// Never touches checkpoints of another run or unreadable checkpoints. Returns the deleted steps,
/// newest first. Only the owner of the run may call it. Throws Error(usage) for keep_last < 1 or a
/// negative number, Error(resource) if a disk operation fails.
std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& directory,
                                            const PruneOptions& options, const WarningSink& warn);

}  // namespace trireme::checkpoint
