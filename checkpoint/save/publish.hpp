#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"

namespace trireme::checkpoint {

/// A checkpoint before the commit: everything except its shards, which writers put into
/// `temporary`.
struct Unpublished {
  std::filesystem::path directory;  // directory of the checkpoints
  std::filesystem::path temporary;  // directory/.tmp-step-NNNNNNNNN
  std::string run_id;
  std::int64_t step = 0;
  std::map<std::string, std::string> values;
  std::map<std::string, std::string> files;
};

/// Removes leftovers of killed saves and creates the temporary directory. Throws Error(usage) if
/// the step already exists, Error(resource) if a disk operation fails.
void make_temporary(const Unpublished& unpublished);

/// Writes the copied files and the manifest, renames the directory and updates `latest`. `parts`
/// come from the writers of the shards. Returns the published directory. Throws Error(internal) if
/// the parts do not form a complete checkpoint, Error(resource) if a shard has another size than
/// written or a disk operation fails.
std::filesystem::path publish_checkpoint(const Unpublished& unpublished,
                                         const std::vector<CheckpointManifest>& parts);

}  // namespace trireme::checkpoint
