#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/shards/pack_table.hpp"
#include "data/shards/set_kind.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme {

/// Which document lies where and came from where. All but `offset` have one entry a document.
struct DocumentTable {
  std::vector<std::uint64_t> offset{0};      // [D+1] prefix sum in tokens
  std::vector<std::uint32_t> source;         // index in ShardContent::sources_json
  std::vector<std::uint64_t> source_offset;  // byte offset of its line
  std::vector<std::uint64_t> text_xxh3;      // XXH3-64 of the text as encoded
  // Number of its line, from the first line of its source in this shard; empty if nobody counted.
  std::vector<std::uint32_t> line;
};

/// A shard before it is written. Token parts are little-endian u16 or u32 as meta.token_dtype says;
/// one after another they are the shard's tokens, so a caller need not join them.
struct ShardContent {
  ShardMeta meta;
  std::vector<std::span<const std::byte>> token_parts;
  DocumentTable documents;
  std::string sources_json = "[]";  // [{"name":..., "size":..., "lines":...}, ...]
  std::string bad_json = "[]";      // [[source, offset, "reason"], ...], the first of them
  std::vector<PackTable> packs;
  DocumentTargets targets;
};

/// Writes folder/shard-NNNNN.h5 whole: temporary file, checked by reading it again, fsync, rename.
/// The bytes depend on `content` alone. A temporary left by a killed writer starts
/// with ".tmp." and may be deleted. Throws Error(resource) if the disk refuses or
/// the shard exists already. Returns the path.
std::filesystem::path write_shard(const std::filesystem::path& folder, const ShardContent& content);

}  // namespace trireme
