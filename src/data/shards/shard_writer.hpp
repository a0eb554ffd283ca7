#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/shards/document_columns.hpp"
#include "data/shards/pack_table.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme {

/// A shard before it is written. The tokens are of meta.token_dtype.
struct ShardContent {
  ShardMeta meta;
  DocumentColumns documents;
  std::string sources_json = "[]";  // [{"name":..., "size":..., "lines":...}, ...]
  std::string bad_json = "[]";      // [[source, position, "reason"], ...], the first of them
  std::vector<PackTable> packs;
};

/// Writes folder/shard-NNNNN.h5 whole: temporary file, checked by reading it again, fsync, rename.
/// The bytes depend on `content` alone. A temporary left by a killed writer starts
/// with ".tmp." and may be deleted. Throws Error(resource) if the disk refuses or
/// the shard exists already. Returns the path.
std::filesystem::path write_shard(const std::filesystem::path& folder, const ShardContent& content);

}  // namespace trireme
