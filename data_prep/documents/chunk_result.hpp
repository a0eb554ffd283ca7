#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/shards/shard_writer.hpp"

namespace trireme {

/// Maximum number of invalid records that a shard lists; all are counted.
inline constexpr std::size_t kMaxBadListed = 1000;

struct BadLine {
  std::uint32_t source = 0;    // index of the input in the list of the shard
  std::uint64_t position = 0;  // position of the record in the input
  std::string reason;
};

/// A field in records that pack does not read.
struct IgnoredField {
  std::uint64_t records = 0;    // number of records in which the field is not empty
  std::uint64_t with_text = 0;  // number of records in which it contains a text
  std::uint32_t source = 0;     // input of the first record in which it contains a text
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

/// The documents of one chunk of an input in order, and the counts of its other records.
struct ChunkResult {
  std::uint32_t file = 0;    // index of the input
  std::uint32_t source = 0;  // index of that input in the list of the shard
  DocumentColumns documents;
  std::vector<BadLine> bad;
  std::map<std::string, IgnoredField> ignored;  // key: name
  std::uint64_t num_records = 0;                // number of processed records
  std::uint64_t hash = 0;
  std::optional<BadLine> fatal;
};

}  // namespace trireme
