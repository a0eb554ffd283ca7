#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/shards/document_columns.hpp"
#include "data/shards/pack_table.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme {

/// A shard before it is written. Tokens have the type meta.token_dtype.
struct ShardContent {
  ShardMeta meta;
  DocumentColumns documents;
  std::string sources_json = "[]";  // [{"name":..., "size":..., "lines":...}, ...]
  std::string bad_json = "[]";      // [[source, position, "reason"], ...], first entries
  std::vector<PackTable> packs;
};

/// Writes folder/shard-NNNNN.h5: temporary file, checked by reading it back, fsync, rename. The
/// bytes depend only on `content`. A temporary file of a killed writer starts with ".tmp." and may
/// be deleted. Throws Error(resource) if a disk operation fails or the shard already exists.
/// Returns the path.
std::filesystem::path write_shard(const std::filesystem::path& folder, const ShardContent& content);

}  // namespace trireme
