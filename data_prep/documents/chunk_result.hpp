#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/shards/set_kind.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme {

/// Bad lines that a shard lists; further ones are only counted.
inline constexpr std::size_t kMaxBadListed = 1000;

struct BadLine {
  std::uint32_t file = 0;  // index of the input
  std::uint64_t offset = 0;
  std::string reason;
};

/// A field that records hold and pack does not read.
struct IgnoredField {
  std::uint64_t records = 0;    // in which it holds something
  std::uint64_t with_text = 0;  // of them, in which it holds a text
  std::uint32_t file = 0;       // place of the first record that holds a text in it
  std::uint64_t offset = 0;

  void add(const IgnoredField& later) {
    if (with_text == 0 && later.with_text != 0) {
      file = later.file;
      offset = later.offset;
    }
    records += later.records;
    with_text += later.with_text;
  }
};

/// What the lines of one chunk of an input became, in order. All vectors but tokens and bad have
/// one entry a document.
struct ChunkResult {
  std::vector<std::byte> tokens;  // little-endian, of the shard's width
  std::vector<std::uint64_t> lengths;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> lines;  // from the chunk's first
  std::vector<std::uint64_t> text_hashes;
  DocumentTargets targets;
  std::vector<BadLine> bad;
  std::map<std::string, IgnoredField> ignored;  // by name
  ShardCounts counts;
  std::uint64_t num_lines = 0;
  std::uint32_t line_of_next = 0;  // of the line that is being taken
  std::uint64_t hash = 0;
  std::optional<BadLine> fatal;
};

}  // namespace trireme
