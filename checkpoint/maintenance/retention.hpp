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
  std::int64_t keep_every = 0;  // also keep all steps that are divisible by this number; 0: none
  // keep this number of checkpoints with the lowest kValidLossValue
  std::int64_t keep_best = 0;
  /// For these steps, only the sizes of the files are checked. Other steps are read as a whole.
  std::vector<std::int64_t> trusted = {};
};

/// The names of the options in errors.
struct PruneNames {
  const char* keep_last = "checkpoint.keep_last";
  const char* keep_every = "checkpoint.keep_every";
  const char* keep_best = "checkpoint.keep_best";
};

/// Throws Error(usage) for keep_last < 1 or a negative number.
void check_prune_options(const PruneOptions& options, const PruneNames& names = {});

/// Returns the steps that prune_checkpoints would delete, newest first. Deletes nothing.
std::vector<std::int64_t> surplus_checkpoints(const std::filesystem::path& directory,
                                              const PruneOptions& options, const WarningSink& warn);

/// Deletes checkpoints that are older than the newest `keep_last` good ones. Also keeps steps that
/// are divisible by `keep_every`, and the `keep_best` good checkpoints with the lowest validation
/// loss (if two are equal, the newer one). Damaged checkpoints do not count as kept. They are
/// deleted only if they are older than the newest `keep_last` good ones. Never deletes checkpoints
/// of another run or unreadable checkpoints. Returns the deleted steps, newest first. The caller
/// must hold the lock of the run. Throws Error(usage) for keep_last < 1 or a negative number,
/// Error(resource) if a disk operation fails.
std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& directory,
                                            const PruneOptions& options, const WarningSink& warn);

}  // namespace trireme::checkpoint
