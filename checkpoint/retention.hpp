#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/verify.hpp"

namespace trireme {

struct PruneOptions {
  std::string run_id;
  std::int64_t keep_last = 2;   // at least 1 good ones stay, the newest
  std::int64_t keep_every = 0;  // steps divisible by it stay forever; 0: none
  /// Steps this process has itself saved or verified: their sizes are checked, not read again.
  std::vector<std::int64_t> trusted = {};
};

/// Deletes checkpoints older than the newest `keep_last` good ones. Damaged ones do not count, and
/// are deleted only when older than those; checkpoints of another run, and what cannot be read, are
/// never touched. Returns the deleted steps, newest first. Only the run's owner may call it. Throws
/// Error(usage) for keep_last < 1, Error(resource) when the disk refuses.
std::vector<std::int64_t> prune_checkpoints(const std::filesystem::path& folder,
                                            const PruneOptions& options,
                                            const WarningSink& warn);

}  // namespace trireme
