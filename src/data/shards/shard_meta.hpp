#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/dtype.hpp"
#include "core/files/json.hpp"

namespace trireme {

/// What a shard counts. Sums over shards are the set's counts.
struct ShardCounts {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t target_tokens = 0;  // at the packing length; of pairs: of both answers
  std::uint64_t bad_lines = 0;  // skipped lines: not JSON, no text, bad text that was to be skipped
  std::uint64_t replaced_chars = 0;  // U+FFFD put for lone surrogates and invalid UTF-8
  std::uint64_t truncated = 0;       // documents that lost tokens
  std::uint64_t dropped = 0;  // good lines that gave no document (no text, or no target left)
  // Parts of `truncated` and `dropped`; stored only where they are not 0.
  std::uint64_t cut_prompts = 0;    // pairs that lost the beginning of their prompt
  std::uint64_t cut_answers = 0;    // pairs that lost the end of a side
  std::uint64_t dropped_long = 0;   // had targets at a longer packing length
  std::uint64_t dropped_equal = 0;  // pairs of equal sides

  ShardCounts& operator+=(const ShardCounts& other) noexcept;
  bool operator==(const ShardCounts&) const = default;
};

/// Name of a field of the records ("score", of a message "messages[].name") -> number of records in
/// which it held something and was not read.
using IgnoredFields = std::map<std::string, std::uint64_t>;

/// Names that a shard or a manifest lists; what further ones hold is counted under one name.
inline constexpr std::size_t kMaxIgnoredListed = 200;

/// The entry of a field in a map by name.
template <class Map>
auto& ignored_slot(Map& fields, const std::string& name) {
  const std::string others = "(other fields)";
  const bool full = fields.size() - fields.count(others) >= kMaxIgnoredListed;
  return fields[full && !fields.contains(name) ? others : name];
}

/// The dataset /meta of a shard: what it is, apart from its tables.
struct ShardMeta {
  std::string kind;  // SetKind::name
  DType token_dtype = DType::u16;
  std::uint64_t vocab_size = 0;
  std::string identity;  // hash of everything that decides the bytes of the whole set
  std::uint64_t shard_index = 0;
  std::uint64_t shard_count = 1;
  std::string input_xxh3;  // of the input bytes this shard was made from
  ShardCounts counts;
  std::map<std::int64_t, std::uint64_t> packs;  // prepared sequence length -> sequences
  IgnoredFields ignored_fields = {};            // stored where there are some
};

/// u16 if every id fits, else u32. Throws Error(usage) for a vocabulary of 0 or over 2^31.
DType token_dtype_for(std::uint64_t vocab_size);

Json counts_to_json(const ShardCounts& counts);
ShardCounts counts_from_json(const Json& json, std::string_view where);
/// {"512": 1000, ...}
Json packs_to_json(const std::map<std::int64_t, std::uint64_t>& packs);
std::map<std::int64_t, std::uint64_t> packs_from_json(const Json& json, std::string_view where);
/// An object of counts. Throws Error(data) for anything else.
IgnoredFields ignored_fields_from_json(const Json& json, std::string_view where);
std::string meta_to_text(const ShardMeta& meta);
ShardMeta meta_from_text(std::string_view text, std::string_view where);

}  // namespace trireme
