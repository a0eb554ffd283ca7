#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/by_name.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/set_content.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view kHashKey = ",\n  \"manifest_xxh3\": \"";

Json optional_id(const std::optional<std::int64_t>& id) {
  return id ? Json(*id) : Json(nullptr);
}

std::optional<std::int64_t> read_id(const Json& json, std::string_view key,
                                    std::string_view where) {
  const auto found = json.find(std::string(key));
  if (found != json.end() && found->is_null()) return std::nullopt;
  return json_get<std::int64_t>(json, key, where);
}

Json shard_to_json(const ShardEntry& shard) {
  Json json = Json::object();
  json["file"] = shard.file;
  json["bytes"] = shard.bytes;
  json["frame_xxh3"] = shard.frame_xxh3;
  json["counts"] = counts_to_json(shard.counts);
  json["packs"] = packs_to_json(shard.packs);
  return json;
}

ShardEntry shard_from_json(const Json& json, std::size_t index, std::string_view where) {
  ShardEntry shard;
  shard.file = json_get<std::string>(json, "file", where);
  if (shard.file != schema::shard_name(index)) {
    fail(ErrorKind::data, "{}: shard {} is '{}', must be {}", where, index, shard.file,
         schema::shard_name(index));
  }
  shard.bytes = json_get<std::uint64_t>(json, "bytes", where);
  shard.frame_xxh3 = json_get<std::string>(json, "frame_xxh3", where);
  shard.counts = counts_from_json(json_member(json, "counts", where), where);
  shard.packs = packs_from_json(json_member(json, "packs", where), where);
  return shard;
}

Json body_to_json(const Manifest& manifest) {
  Json json = Json::object();
  json["format"] = std::string(schema::kFormat);
  json["version"] = schema::kVersion;
  json["kind"] = manifest.kind;
  if (!manifest.stored_as.empty()) json["stored_as"] = manifest.stored_as;
  json["identity"] = manifest.identity;
  json["vocab_size"] = manifest.vocab_size;
  json["bos_id"] = optional_id(manifest.bos_id);
  json["eos_id"] = optional_id(manifest.eos_id);
  json["pad_id"] = optional_id(manifest.pad_id);
  json["seq_len"] = manifest.seq_len;
  json["tokenizer"] = {{"hash", manifest.tokenizer_hash}, {"files", manifest.tokenizer_files}};
  json["config"] = parse_json(manifest.config_json, "config");
  json["sources"] = Json::array();
  for (const SourceEntry& source : manifest.sources) {
    Json& entry = json["sources"].emplace_back(
        Json{{"name", source.name}, {"size", source.size}, {"fingerprint", source.fingerprint}});
    if (source.position != "byte") entry["position"] = source.position;
  }
  json["counts"] = counts_to_json(manifest.counts);
  json["bad"] = manifest.bad;
  if (!manifest.ignored_fields.empty()) json["ignored_fields"] = manifest.ignored_fields;
  json["shards"] = Json::array();
  for (const ShardEntry& shard : manifest.shards) json["shards"].push_back(shard_to_json(shard));
  return json;
}

/// Returns the value of a text option of `pack`; "" if the option was not given.
std::string option_text(const std::string& config_json, const char* key) {
  const Json config = parse_json(config_json, "config");
  if (!config.is_object()) return "";
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Throws Error(data) unless the last key of the file is the correct hash of the preceding text.
void check_self_hash(std::string_view text, const std::filesystem::path& path) {
  const std::size_t at = text.rfind(kHashKey);
  if (at == std::string_view::npos ||
      text.substr(at + kHashKey.size()) !=
          formatted("{}\"\n}}\n", xxh3_128_hex(text.substr(0, at)))) {
    fail(
        ErrorKind::data,
        "{}: damaged: its own checksum does not match (or it was edited by hand). Delete this file "
        "and repeat the command that made the set: good shards are kept",
        path.string());
  }
}

}  // namespace

std::string Manifest::to_text() {
  Json json = body_to_json(*this);
  content_xxh3 = xxh3_128_hex(json.dump());
  json["content_xxh3"] = content_xxh3;
  // These keys were added later. They are not hashed, so that equal sets of older versions are equal.
  if (!record_format.empty()) {
    json["record_format"] = record_format;
    if (contents().is_masked()) json["counts"]["untrained_messages"] = counts.untrained_messages;
  }
  std::string text = json.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  const std::string hash = xxh3_128_hex(text);
  return formatted("{}{}{}\"\n}}\n", text, kHashKey, hash);
}

const SetContent& Manifest::contents() const {
  return set_content(kind, stored_as);
}

std::string Manifest::chat_template() const {
  return option_text(config_json, "template");
}

PairCutRule Manifest::pair_cut_rule() const {
  const std::string name = option_text(config_json, "cut_pairs");
  if (name.empty()) return PairCutRule::prompt_to_last_token;
  if (std::find(kPairCutRules.begin(), kPairCutRules.end(), name) == kPairCutRules.end()) {
    fail(ErrorKind::data,
         "{}: cut_pairs is {}. This program reads sets packed with --cut-pairs {}.",
         schema::kManifest, name, joined(kPairCutRules, ", "));
  }
  return by_name<PairCutRule>(kPairCutRules, name);
}

Manifest Manifest::from_text(std::string_view text, const std::filesystem::path& path) {
  const std::string where = path.string();
  check_self_hash(text, path);
  const Json json = parse_json(text, where, {.max_bytes = std::size_t{1} << 30, .max_depth = 64});
  const auto format = json_get<std::string>(json, "format", where);
  const auto version = json_get<std::uint64_t>(json, "version", where);
  if (format != schema::kFormat || version != schema::kVersion) {
    fail(ErrorKind::data, "{}: format {} version {}, this program reads {} version {}", where,
         format, version, schema::kFormat, schema::kVersion);
  }
  Manifest manifest;
  manifest.kind = json_get<std::string>(json, "kind", where);
  if (json.contains("stored_as"))
    manifest.stored_as = json_get<std::string>(json, "stored_as", where);
  manifest.identity = json_get<std::string>(json, "identity", where);
  manifest.vocab_size = json_get<std::uint64_t>(json, "vocab_size", where);
  manifest.bos_id = read_id(json, "bos_id", where);
  manifest.eos_id = read_id(json, "eos_id", where);
  manifest.pad_id = read_id(json, "pad_id", where);
  manifest.seq_len = json_get<std::int64_t>(json, "seq_len", where);
  const Json& tokenizer = json_member(json, "tokenizer", where);
  manifest.tokenizer_hash = json_get<std::string>(tokenizer, "hash", where);
  const Json& files = json_member(tokenizer, "files", where);
  for (const auto& item : files.items()) {
    const std::string& name = item.key();
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      fail(ErrorKind::data, "{}: tokenizer file name '{}' is not a plain name", where, name);
    }
    manifest.tokenizer_files[name] = json_get<std::string>(files, name, where);
  }
  manifest.config_json = json_member(json, "config", where).dump();
  for (const Json& source : json_member(json, "sources", where)) {
    manifest.sources.push_back({json_get<std::string>(source, "name", where),
                                json_get<std::uint64_t>(source, "size", where),
                                json_get<std::string>(source, "fingerprint", where)});
    if (source.contains("position"))
      manifest.sources.back().position = json_get<std::string>(source, "position", where);
  }
  manifest.counts = counts_from_json(json_member(json, "counts", where), where);
  for (const Json& bad : json_member(json, "bad", where)) {
    if (!bad.is_string()) fail(ErrorKind::data, "{}: 'bad' must be a list of strings", where);
    manifest.bad.push_back(bad.get<std::string>());
  }
  if (json.contains("ignored_fields"))
    manifest.ignored_fields = ignored_fields_from_json(json["ignored_fields"], where);
  for (const Json& shard : json_member(json, "shards", where)) {
    manifest.shards.push_back(shard_from_json(shard, manifest.shards.size(), where));
  }
  manifest.content_xxh3 = json_get<std::string>(json, "content_xxh3", where);
  if (json.contains("record_format"))
    manifest.record_format = json_get<std::string>(json, "record_format", where);
  return manifest;
}

}  // namespace trireme::data
