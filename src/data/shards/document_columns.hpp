#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/shards/set_kind.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme {

/// The documents of a chunk of input, of a partition or of a shard, column by column: D documents
/// of T tokens.
///   token_parts    [T]    ids, little-endian u16 or u32; the parts follow one another, so that
///                         nobody has to join them
///   offset         [D+1]  prefix sum of the documents' tokens
///   source         [D]    index of the document's input in the shard's list of sources
///   source_offset  [D]    position of its record in that input; byte offset of the line for jsonl
///   text_xxh3      [D]    XXH3-64 of the text as encoded
///   line           [D]    number of its record, counted from the first record of its source here;
///                         empty if nobody counted
struct DocumentColumns {
  std::vector<std::vector<std::byte>> token_parts;
  std::vector<std::uint64_t> offset{0};
  std::vector<std::uint32_t> source;
  std::vector<std::uint64_t> source_offset;
  std::vector<std::uint64_t> text_xxh3;
  std::vector<std::uint32_t> line;
  DocumentTargets targets;
  ShardCounts counts;

  /// Adds the documents of `later` behind these. `first_line` is the number of records of the same
  /// source before those of `later`.
  void append(DocumentColumns&& later, std::uint64_t first_line);
};

}  // namespace trireme
