#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/shards/document_columns.hpp"

namespace trireme {

/// Bad lines that a shard lists; further ones are only counted.
inline constexpr std::size_t kMaxBadListed = 1000;

struct BadLine {
  std::uint32_t source = 0;    // index of the input among those of the shard
  std::uint64_t position = 0;  // of the record in it
  std::string reason;
};

/// A field that records hold and pack does not read.
struct IgnoredField {
  std::uint64_t records = 0;    // in which it holds something
  std::uint64_t with_text = 0;  // of them, in which it holds a text
  std::uint32_t source = 0;     // place of the first record that holds a text in it
  std::uint64_t position = 0;

  void add(const IgnoredField& later) {
    if (with_text == 0 && later.with_text != 0) {
      source = later.source;
      position = later.position;
    }
    records += later.records;
    with_text += later.with_text;
  }
};

/// The documents of one chunk of an input, and what became of its other records, in order.
struct ChunkResult {
  std::uint32_t file = 0;    // index of the input
  std::uint32_t source = 0;  // index of that input among those of the shard
  DocumentColumns documents;
  std::vector<BadLine> bad;
  std::map<std::string, IgnoredField> ignored;  // by name
  std::uint64_t num_records = 0;                // that were taken
  std::uint64_t hash = 0;
  std::optional<BadLine> fatal;
};

}  // namespace trireme
