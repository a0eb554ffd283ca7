#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/dtype.hpp"
#include "core/files/json.hpp"

namespace trireme::data {

/// The counts of a shard. The counts of a set are the sums over its shards.
struct ShardCounts {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t target_tokens = 0;   // at the packing length; pairs: sum of both answers
  std::uint64_t bad_lines = 0;       // skipped records: not JSON, no text, or bad text with skip
  std::uint64_t replaced_chars = 0;  // U+FFFD written for lone surrogates and invalid UTF-8
  std::uint64_t truncated = 0;       // documents that lost tokens
  std::uint64_t dropped = 0;  // valid records without a document (no text, or no target left)
  // Parts of `truncated` and `dropped`; stored only if they are not 0.
  std::uint64_t cut_prompts = 0;    // pairs that lost the beginning of their prompt
  std::uint64_t cut_answers = 0;    // pairs that lost the end of a side
  std::uint64_t dropped_long = 0;   // documents that would keep targets at a longer packing length
  std::uint64_t dropped_equal = 0;  // pairs of equal sides
  // Answers without loss in the records read: weight, train, --train-on, a prompt with answers.
  std::uint64_t untrained_messages = 0;

  ShardCounts& operator+=(const ShardCounts& other) noexcept;
  bool operator==(const ShardCounts&) const = default;
};

/// Maps the name of a record field to the number of records in which the field was not empty and
/// `pack` did not read it. A field of a message has a name like "messages[].name".
using IgnoredFields = std::map<std::string, std::uint64_t>;

/// Maximum number of names that a shard or a manifest lists; the others are counted under one name.
inline constexpr std::size_t kMaxIgnoredListed = 200;

/// Returns the entry of field `name`. If the map is full, a new name gets the common entry "(other
/// fields)".
template <class Map>
auto& ignored_slot(Map& fields, const std::string& name) {
  const std::string others = "(other fields)";
  const bool full = fields.size() - fields.count(others) >= kMaxIgnoredListed;
  return fields[full && !fields.contains(name) ? others : name];
}

/// The dataset /meta of a shard: its properties without its tables.
struct ShardMeta {
  std::string kind;       // RecordKind::name
  std::string stored_as;  // SetContent::name of the content; "": `kind`
  DType token_dtype = DType::u16;
  std::uint64_t vocab_size = 0;
  std::string identity;  // hash of everything that determines the bytes of the set
  std::uint64_t shard_index = 0;
  std::uint64_t shard_count = 1;
  std::string input_xxh3;  // hash of the input bytes of this shard
  ShardCounts counts;
  std::map<std::int64_t, std::uint64_t> packs;  // prepared sequence length -> number of sequences
  IgnoredFields ignored_fields = {};            // stored only if not empty
};

/// Returns u16 if every id fits, else u32. Throws Error(usage) for a size of 0 or over 2^31.
DType token_dtype_for(std::uint64_t vocab_size);

/// Returns a member of an object. Throws Error(data) if it is missing.
const Json& json_member(const Json& object, const char* key, std::string_view where);

Json counts_to_json(const ShardCounts& counts);
ShardCounts counts_from_json(const Json& json, std::string_view where);
/// Returns {"512": 1000, ...}.
Json packs_to_json(const std::map<std::int64_t, std::uint64_t>& packs);
std::map<std::int64_t, std::uint64_t> packs_from_json(const Json& json, std::string_view where);
/// Reads an object of counts. Throws Error(data) for anything else.
IgnoredFields ignored_fields_from_json(const Json& json, std::string_view where);
std::string meta_to_text(const ShardMeta& meta);
ShardMeta meta_from_text(std::string_view text, std::string_view where);

}  // namespace trireme::data
