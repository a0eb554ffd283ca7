#include "data_prep/pack/publish.hpp"

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/process/failpoints.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/documents/document_maker.hpp"

namespace trireme::data_prep {
namespace {

void add_bad(const data::TokenShard& shard, data::Manifest& manifest) {
  const std::string where = formatted("{}:{}", shard.path().string(), data::schema::kBad);
  const Json sources = parse_json(
      shard.sources_json(), formatted("{}:{}", shard.path().string(), data::schema::kSources));
  for (const Json& bad : parse_json(shard.bad_json(), where)) {
    if (manifest.bad.size() >= kMaxInvalidListed) return;
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

/// Removes the empty shards, and the directory if this pack created it, and throws Error(data).
[[noreturn]] void refuse_empty_set(const PackPlan& plan, const data::Manifest& manifest,
                                   const PackDirectory& directory) {
  for (std::size_t i = 0; i < plan.partitions.size(); ++i)
    std::filesystem::remove(directory.path() / data::schema::shard_name(i));
  const std::string first = plan.inputs.front().path.string();
  const std::string inputs =
      plan.inputs.size() == 1 ? first : formatted("{} inputs ({}, ...)", plan.inputs.size(), first);
  fail(ErrorKind::data, "{}", explain_empty_set(inputs, manifest));
}

}  // namespace

void add_shards(const std::filesystem::path& directory, std::size_t num_shards,
                data::Manifest& manifest) {
  for (std::size_t i = 0; i < num_shards; ++i) {
    const data::TokenShard shard = data::TokenShard::open(directory / data::schema::shard_name(i));
    if (shard.meta().identity != manifest.identity || shard.meta().shard_index != i) {
      fail(ErrorKind::data, "{} is not shard {} of this set", shard.path().string(), i);
    }
    manifest.shards.push_back({data::schema::shard_name(i),
                               shard.frame().hdf5_bytes + data::kFooterBytes, shard.frame().xxh3,
                               shard.meta().counts, shard.meta().packs});
    manifest.counts += shard.meta().counts;
    for (const auto& [name, records] : shard.meta().ignored_fields)
      data::ignored_slot(manifest.ignored_fields, name) += records;
    add_bad(shard, manifest);
  }
}

void check_invalid_records(const PackConfig& config, std::uint64_t count, const std::string& hint) {
  if (config.max_bad < 0 || count <= static_cast<std::uint64_t>(config.max_bad)) return;
  fail(ErrorKind::data, "more than --max-bad {} invalid records: {} so far{}", config.max_bad,
       count, hint);
}

std::vector<Loss> publish(const PackConfig& config, const PackPlan& plan,
                          const std::vector<std::string>& ignore_fields, bool is_finished,
                          const PackDirectory& directory) {
  if (!is_finished) {
    data::Manifest manifest = plan.manifest;
    add_shards(directory.path(), plan.partitions.size(), manifest);
    check_invalid_records(config, manifest.counts.bad_lines, first_invalid(manifest));
    if (manifest.counts.documents == 0) refuse_empty_set(plan, manifest, directory);
    failpoint("pack.before_manifest");
    write_file_atomic(directory.path() / data::schema::kManifest, manifest.to_text());
  }
  return find_losses(directory.read_manifest(), ignore_fields);
}

}  // namespace trireme::data_prep
