#include "data_prep/pack/manifest_builder.hpp"

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/identity.hpp"
#include "data_prep/pack/pack_partition.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {
namespace {

std::optional<std::int64_t> widen(std::optional<std::uint32_t> id) {
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

void add_bad(const TokenShard& shard, Manifest& manifest) {
  const std::string where = formatted("{}:{}", shard.path().string(), schema::kBad);
  const Json sources =
      parse_json(shard.sources_json(), formatted("{}:{}", shard.path().string(), schema::kSources));
  for (const Json& bad : parse_json(shard.bad_json(), where)) {
    if (manifest.bad.size() >= kMaxBadListed) return;
    if (!bad.is_array() || bad.size() != 3 || !bad[0].is_number_unsigned() ||
        bad[0].get<std::size_t>() >= sources.size() || !bad[1].is_number_unsigned() ||
        !bad[2].is_string()) {
      fail(ErrorKind::data, "{}: not a list of [source, offset, reason]", where);
    }
    const auto name = json_get<std::string>(sources[bad[0].get<std::size_t>()], "name", where);
    manifest.bad.push_back(
        formatted("{}:{}: {}", name, bad[1].get<std::uint64_t>(), bad[2].get<std::string>()));
  }
}

/// Names are stored as JSON, which is UTF-8.
void check_name(const InputFile& file) {
  std::string repaired;
  append_lossy_utf8(file.name, repaired);
  if (repaired != file.name)
    fail(ErrorKind::usage, "--input {}: the name is not UTF-8; rename the file", repaired);
}

}  // namespace

Manifest start_manifest(const PackConfig& config, const DocumentRules& rules,
                        const Tokenizer& tokenizer, const std::vector<InputFile>& files) {
  Manifest manifest;
  manifest.kind = config.documents.kind;
  manifest.vocab_size = tokenizer.vocab_size();
  manifest.bos_id = widen(tokenizer.bos_id());
  manifest.eos_id = widen(tokenizer.eos_id());
  manifest.pad_id = widen(tokenizer.pad_id());
  manifest.seq_len = config.seq_len;
  manifest.tokenizer_hash = tokenizer.content_hash();
  for (const auto& [name, content] : tokenizer.files())
    manifest.tokenizer_files[name] = xxh3_128_hex(content);
  Json asked = Json::object();
  put_identity(rules, asked);
  DocumentConfig documents = config.documents;
  put_fields(config, fields_of("documents", documents), asked);
  if (!set_kind(manifest.kind).has_pairs()) asked["packing_rule"] = kPackingRule;
  manifest.config_json = asked.dump();
  for (const InputFile& file : files) check_name(file);
  for (const InputFile& file : files)
    manifest.sources.push_back({file.name, file.size, file.fingerprint});
  manifest.identity = xxh3_128_hex(manifest.to_text());
  return manifest;
}

void add_shards(const std::filesystem::path& folder, std::size_t num_shards, Manifest& manifest) {
  for (std::size_t i = 0; i < num_shards; ++i) {
    const TokenShard shard = TokenShard::open(folder / schema::shard_name(i));
    if (shard.meta().identity != manifest.identity || shard.meta().shard_index != i) {
      fail(ErrorKind::data, "{} is not shard {} of this set", shard.path().string(), i);
    }
    manifest.shards.push_back({schema::shard_name(i), shard.frame().hdf5_bytes + kFooterBytes,
                               shard.frame().xxh3, shard.meta().counts, shard.meta().packs});
    manifest.counts += shard.meta().counts;
    for (const auto& [name, records] : shard.meta().ignored_fields)
      ignored_slot(manifest.ignored_fields, name) += records;
    add_bad(shard, manifest);
  }
}

}  // namespace trireme
