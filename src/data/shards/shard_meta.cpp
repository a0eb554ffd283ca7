#include "data/shards/shard_meta.hpp"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.hpp"

namespace trireme::data {
namespace {

struct CountRow {
  const char* key;
  std::uint64_t ShardCounts::*member;
  bool optional = false;  // stored only if not 0; absent in older sets
};

constexpr std::array<CountRow, 12> kCounts{
    {{"documents", &ShardCounts::documents},
     {"tokens", &ShardCounts::tokens},
     {"target_tokens", &ShardCounts::target_tokens},
     {"bad_lines", &ShardCounts::bad_lines},
     {"replaced_chars", &ShardCounts::replaced_chars},
     {"truncated", &ShardCounts::truncated},
     {"dropped", &ShardCounts::dropped},
     {"cut_prompts", &ShardCounts::cut_prompts, true},
     {"cut_answers", &ShardCounts::cut_answers, true},
     {"dropped_long", &ShardCounts::dropped_long, true},
     {"dropped_equal", &ShardCounts::dropped_equal, true},
     {"untrained_messages", &ShardCounts::untrained_messages, true}}};

}  // namespace

ShardCounts& ShardCounts::operator+=(const ShardCounts& other) noexcept {
  for (const CountRow& row : kCounts) this->*row.member += other.*row.member;
  return *this;
}

DType token_dtype_for(std::uint64_t vocab_size) {
  if (vocab_size == 0 || vocab_size > std::uint64_t{1} << 31) {
    fail(ErrorKind::usage, "vocabulary of {} tokens, must be in [1, 2^31]", vocab_size);
  }
  return vocab_size <= 65536 ? DType::u16 : DType::u32;
}

const Json& json_member(const Json& object, const char* key, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end()) fail(ErrorKind::data, "{}: key '{}' is missing", where, key);
  return *found;
}

Json counts_to_json(const ShardCounts& counts) {
  Json json = Json::object();
  for (const CountRow& row : kCounts) {
    if (!row.optional || counts.*row.member != 0) json[row.key] = counts.*row.member;
  }
  return json;
}

ShardCounts counts_from_json(const Json& json, std::string_view where) {
  ShardCounts counts;
  for (const CountRow& row : kCounts) {
    if (!row.optional || json.contains(row.key))
      counts.*row.member = json_get<std::uint64_t>(json, row.key, where);
  }
  return counts;
}

Json packs_to_json(const std::map<std::int64_t, std::uint64_t>& packs) {
  Json json = Json::object();
  for (const auto& [seq_len, sequences] : packs) json[std::to_string(seq_len)] = sequences;
  return json;
}

std::map<std::int64_t, std::uint64_t> packs_from_json(const Json& json, std::string_view where) {
  std::map<std::int64_t, std::uint64_t> packs;
  if (!json.is_object()) fail(ErrorKind::data, "{}: packs is not an object", where);
  for (const auto& [key, value] : json.items()) {
    std::int64_t seq_len = 0;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), seq_len);
    if (code != std::errc{} || end != key.data() + key.size() || seq_len < 2 ||
        !value.is_number_unsigned()) {
      fail(ErrorKind::data, "{}: packs has an invalid entry '{}'", where, key);
    }
    packs[seq_len] = value.get<std::uint64_t>();
  }
  return packs;
}

IgnoredFields ignored_fields_from_json(const Json& json, std::string_view where) {
  IgnoredFields fields;
  if (!json.is_object()) fail(ErrorKind::data, "{}: ignored_fields is not an object", where);
  for (const auto& [name, count] : json.items()) {
    if (!count.is_number_unsigned())
      fail(ErrorKind::data, "{}: ignored_fields has an invalid entry '{}'", where, name);
    fields[name] = count.get<std::uint64_t>();
  }
  return fields;
}

std::string meta_to_text(const ShardMeta& meta) {
  Json json = Json::object();
  json["kind"] = meta.kind;
  if (!meta.stored_as.empty()) json["stored_as"] = meta.stored_as;
  json["token_dtype"] = std::string(dtype_name(meta.token_dtype));
  json["vocab_size"] = meta.vocab_size;
  json["identity"] = meta.identity;
  json["shard_index"] = meta.shard_index;
  json["shard_count"] = meta.shard_count;
  json["input_xxh3"] = meta.input_xxh3;
  json["counts"] = counts_to_json(meta.counts);
  json["packs"] = packs_to_json(meta.packs);
  if (!meta.ignored_fields.empty()) json["ignored_fields"] = meta.ignored_fields;
  return json.dump();
}

ShardMeta meta_from_text(std::string_view text, std::string_view where) {
  const Json json = parse_json(text, where);
  ShardMeta meta;
  meta.kind = json_get<std::string>(json, "kind", where);
  if (json.contains("stored_as")) meta.stored_as = json_get<std::string>(json, "stored_as", where);
  const auto name = json_get<std::string>(json, "token_dtype", where);
  const auto dtype = dtype_from_name(name);
  if (dtype != DType::u16 && dtype != DType::u32) {
    fail(ErrorKind::data, "{}: token_dtype = {}, must be u16 or u32", where, name);
  }
  meta.token_dtype = *dtype;
  meta.vocab_size = json_get<std::uint64_t>(json, "vocab_size", where);
  meta.identity = json_get<std::string>(json, "identity", where);
  meta.shard_index = json_get<std::uint64_t>(json, "shard_index", where);
  meta.shard_count = json_get<std::uint64_t>(json, "shard_count", where);
  meta.input_xxh3 = json_get<std::string>(json, "input_xxh3", where);
  meta.counts = counts_from_json(json_member(json, "counts", where), where);
  meta.packs = packs_from_json(json_member(json, "packs", where), where);
  if (json.contains("ignored_fields"))
    meta.ignored_fields = ignored_fields_from_json(json["ignored_fields"], where);
  return meta;
}

}  // namespace trireme::data
