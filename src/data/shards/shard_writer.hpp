#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/shards/set_content.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme::data {

/// The documents of an input chunk, a partition or a shard, column by column: D documents with T
/// tokens.
///   token_parts    [T]    ids, little-endian u16 or u32; a list of parts, so that appending does
///                         not copy
///   offset         [D+1]  prefix sum of the token counts
///   source         [D]    index of the input in the source list of the shard
///   source_offset  [D]    position of the record in that input; byte offset of the line for jsonl
///   text_xxh3      [D]    XXH3-64 of the encoded text
///   line           [D]    number of the record, counted from the first record of its source here;
///                         empty if records were not counted
struct DocumentColumns {
  std::vector<std::vector<std::byte>> token_parts;
  std::vector<std::uint64_t> offset{0};
  std::vector<std::uint32_t> source;
  std::vector<std::uint64_t> source_offset;
  std::vector<std::uint64_t> text_xxh3;
  std::vector<std::uint32_t> line;
  DocumentTargets targets;
  ShardCounts counts;

  /// Appends the documents of `later`. `first_line` is the number of records of the same source
  /// before those of `later`.
  void append(DocumentColumns&& later, std::uint64_t first_line);
};

/// A shard before it is written. Tokens have the type meta.token_dtype.
struct ShardContent {
  ShardMeta meta;
  DocumentColumns documents;
  std::string sources_json = "[]";  // [{"name":..., "size":..., "lines":...}, ...]
  std::string bad_json = "[]";      // [[source, position, "reason"], ...], first entries
  std::vector<PackTable> packs;
};

/// Writes directory/shard-NNNNN.h5: temporary file, checked by reading it back, fsync, rename. The
/// bytes depend only on `content`. A temporary file of a killed writer starts with ".tmp." and may
/// be deleted. Throws Error(resource) if a disk operation fails or the shard already exists.
/// Returns the path.
std::filesystem::path write_shard(const std::filesystem::path& directory,
                                  const ShardContent& content);

}  // namespace trireme::data
