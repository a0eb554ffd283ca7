#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"

namespace trireme {

/// A checkpoint on its way: everything but its shards, which lie in `temporary`
/// once they are written.
struct Unpublished {
  std::filesystem::path folder;     // of the checkpoints
  std::filesystem::path temporary;  // folder/.tmp-step-NNNNNNNNN
  std::string run_id;
  std::int64_t step = 0;
  std::map<std::string, std::string> values;
  std::map<std::string, std::string> files;
};

/// Removes what killed saves left in the folder and makes the temporary one. Throws Error(usage) if
/// the step exists already, Error(resource) if the disk refuses.
void make_temporary(const Unpublished& unpublished);

/// From the parts that the writers of shards returned to the published folder, which is returned:
/// carried files, manifest, one rename, `latest`. Throws Error(internal) if the parts are no whole
/// checkpoint, Error(resource) if a shard is not as it was written or the disk refuses.
std::filesystem::path publish_checkpoint(const Unpublished& unpublished,
                                         const std::vector<CheckpointManifest>& parts);

}  // namespace trireme
