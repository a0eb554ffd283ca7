#include "data_prep/pack/pack_plan.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "data/shards/set_content.hpp"
#include "data_prep/identity.hpp"
#include "data_prep/input/inputs.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::data_prep {
namespace {

std::optional<std::int64_t> widen(std::optional<std::uint32_t> id) {
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

data::Manifest plan_manifest(const PackConfig& config, const DocumentRules& rules,
                             const text::Tokenizer& tokenizer,
                             const std::vector<InputFile>& inputs) {
  data::Manifest manifest;
  manifest.kind = config.documents.kind;
  if (const data::SetContent& contents = contents_of(config.documents);
      contents.name != manifest.kind)
    manifest.stored_as = contents.name;
  manifest.seq_len = config.seq_len;
  put_tokenizer(tokenizer, manifest);
  Json asked = Json::object();
  put_identity(rules, asked);
  DocumentConfig documents = config.documents;
  put_fields(config, fields_of("documents", documents), asked);
  if (manifest.contents().has_sequences()) asked["packing_rule"] = data::kPackingRule;
  manifest.config_json = asked.dump();
  put_inputs(inputs, manifest);
  return manifest;
}

}  // namespace

Shards PackPlan::part() const {
  Shards shards;
  for (const Shards& group : groups) shards.insert(shards.end(), group.begin(), group.end());
  std::ranges::sort(shards);
  return shards;
}

std::string PackPlan::describe(std::size_t shard) const {
  const Partition& partition = partitions[shard];
  if (partition.empty()) return "an empty input";
  const std::string first = inputs[partition.front().file].path.string();
  return partition.size() == 1
             ? first
             : formatted("one of {} inputs, the first is {}", partition.size(), first);
}

PackPlan plan_pack(const PackConfig& config, const DocumentRules& rules,
                   const text::Tokenizer& tokenizer, comm::Communicator& world) {
  PackPlan plan;
  plan.inputs = inspect_records(config.inputs, config.threads, &world);
  comm::all_or_none(world, [&] {
    const auto unit_bytes = static_cast<std::uint64_t>(config.unit_bytes);
    plan.partitions = plan_partitions(plan.inputs, unit_bytes);
    plan.manifest = plan_manifest(config, rules, tokenizer, plan.inputs);
    const std::vector<Shards> all = group_partitions(plan.inputs, plan.partitions, unit_bytes);
    const PackPart part = parse_part(config.part).value();
    for (std::size_t i = part.index; i < all.size(); i += part.count) plan.groups.push_back(all[i]);
  });
  return plan;
}

void put_tokenizer(const text::Tokenizer& tokenizer, data::Manifest& manifest) {
  manifest.vocab_size = tokenizer.vocab_size();
  manifest.bos_id = widen(tokenizer.bos_id());
  manifest.eos_id = widen(tokenizer.eos_id());
  manifest.pad_id = widen(tokenizer.pad_id());
  manifest.tokenizer_hash = tokenizer.content_hash();
  for (const auto& [name, content] : tokenizer.files())
    manifest.tokenizer_files[name] = xxh3_128_hex(content);
}

void put_inputs(const std::vector<InputFile>& inputs, data::Manifest& manifest) {
  for (const InputFile& input : inputs) {
    std::string repaired;
    text::append_lossy_utf8(input.name, repaired);
    if (repaired != input.name)
      fail(ErrorKind::usage, "--input {}: the name is not UTF-8; rename the file", repaired);
    manifest.sources.push_back(
        {input.name, input.size, input.fingerprint, std::string(input.format->position)});
  }
  manifest.identity = xxh3_128_hex(manifest.to_text());
}

}  // namespace trireme::data_prep
