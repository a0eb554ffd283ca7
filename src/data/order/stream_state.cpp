#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "core/number.hpp"
#include "data/order/stream.hpp"
#include "data/order/stream_parts.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/shards/shard_meta.hpp"

namespace trireme::data {
namespace {

constexpr const char* kPlan = "data.plan";  // name in errors
constexpr const char* kPackingRuleKey = "packing_rule";
constexpr std::int64_t kStateVersion = 1;

/// Returns the settings that determine the samples, as `data.*` keys.
Json settings_of(const StreamConfig& config) {
  Json settings = Json::object();
  settings["packing"] = std::string(name_of(config.packing));
  settings["cross_documents"] = config.cross_documents;
  settings["split"] = config.split;
  settings["shuffle"] = config.shuffle;
  settings["shuffle_block"] = config.shuffle_block;
  return settings;
}

bool is_plain(const StreamConfig& config) {
  return settings_of(config) == settings_of(StreamConfig{});
}

[[noreturn]] void differ(const std::string& checkpoint, const std::string& what,
                         const std::string& here, const std::string& there) {
  fail(
      ErrorKind::usage,
      "this data does not continue {}: {} is {}, the checkpoint has {}\nData before the checkpoint must not change. Append a phase that starts after it, or give another --run to start a new run.",
      checkpoint, what, here, there);
}

void check_settings(const Json& here, const Json& there, const std::string& where,
                    const std::string& checkpoint) {
  for (const auto& item : here.items()) {
    const Json& saved = json_member(there, item.key().c_str(), where);
    if (item.value() != saved)
      differ(checkpoint, "data." + item.key(), item.value().dump(), saved.dump());
  }
}

/// Compares two lists of sources in order of first use.
void check_sources(const Json& here, const Json& there, const std::string& where,
                   const std::string& checkpoint) {
  for (std::size_t s = 0; s < std::min(here.size(), there.size()); ++s) {
    if (json_member(here[s], "content_xxh3", where) !=
        json_member(there[s], "content_xxh3", where)) {
      fail(
          ErrorKind::usage,
          "--data contains other tokens than {} was trained on: source {} of data.path has content {}, the checkpoint has {}",
          checkpoint, s + 1, here[s]["content_xxh3"].dump(), there[s]["content_xxh3"].dump());
    }
  }
}

void check_phases(const Json& here, const Json& there, const std::string& where,
                  const std::string& checkpoint) {
  if (here.size() != there.size()) {
    differ(checkpoint, "the number of phases before it", std::to_string(here.size()),
           std::to_string(there.size()));
  }
  for (std::size_t p = 0; p < here.size(); ++p) {
    for (const auto& item : here[p].items()) {
      const Json saved = item.key() == kPackingRuleKey && !there[p].contains(kPackingRuleKey)
                             ? Json(1)  // older checkpoints lack this key and used rule 1
                             : json_member(there[p], item.key().c_str(), where);
      if (item.value() != saved) {
        differ(checkpoint, formatted("{} of phase {} of data.path", item.key(), p + 1),
               item.value().dump(), saved.dump());
      }
    }
  }
}

Json phase_to_json(const std::vector<double>& weights, const std::vector<std::size_t>& sources,
                   BlendRule rule) {
  Json entries = Json::array();
  const std::vector<double> shares = normalize_weights(weights);
  for (std::size_t e = 0; e < sources.size(); ++e)
    entries.push_back({{"source", sources[e]}, {"share", shares[e]}});
  Json json = Json::object();
  json["sources"] = std::move(entries);
  if (sources.size() > 1) json["blend_rule"] = std::string(name_of(rule));
  return json;
}

bool is_prepared(const SampleUnion& samples) {
  return std::all_of(samples.sets.begin(), samples.sets.end(),
                     [](const SampleSet* set) { return set->prepared(); });
}

}  // namespace

std::string SampleStream::content_hash() const {
  const auto& sources = parts_->sources;
  const Phase& first = parts_->phases.front();
  const StreamConfig& config = parts_->config;
  if (first.entries.size() == 1 && sources.front().sets.size() == 1 && is_plain(config))
    return sources.front().sets.front()->content_hash();
  std::string text = settings_of(config).dump();
  for (const Phase::Entry& entry : first.entries) {
    text += formatted("\n{}", number_text(entry.weight));
    for (const TokenSet* set : sources[entry.source].sets)
      text += formatted(" {}", set->content_hash());
  }
  return xxh3_128_hex(text);
}

std::string SampleStream::plan_hash() const {
  std::string text = settings_of(parts_->config).dump();
  for (const Phase& phase : parts_->phases) {
    text += formatted("\n{} {}", phase.begin, phase.seq_len);
    for (const Phase::Entry& entry : phase.entries) {
      text += formatted("\n{}", number_text(entry.weight));
      for (const TokenSet* set : parts_->sources[entry.source].sets)
        text += formatted(" {}", set->content_hash());
    }
  }
  return xxh3_128_hex(text);
}

SampleStream::State SampleStream::state(std::int64_t next_sample) const {
  Json plan = Json::object();
  plan["version"] = kStateVersion;
  plan["settings"] = settings_of(parts_->config);
  plan["sources"] = Json::array();
  plan["phases"] = Json::array();
  std::size_t known = 0;  // number of sources of the phases so far
  for (const Phase& phase : parts_->phases) {
    if (phase.begin >= next_sample && phase.begin != 0) break;
    std::vector<double> weights;
    std::vector<std::size_t> sources;
    bool prepared = true;  // true if `pack` made all tables, so that no packing rule applies
    for (const Phase::Entry& entry : phase.entries) {
      const LengthPhase& length_phase =
          parts_->sources[entry.source].length_phases[entry.length_phase];
      prepared = prepared && is_prepared(length_phase.rest) && is_prepared(length_phase.whole);
      weights.push_back(entry.weight);
      sources.push_back(entry.source);
      known = std::max(known, entry.source + 1);
    }
    Json json = phase_to_json(weights, sources, parts_->config.blend_rule);
    json["begin"] = phase.begin;
    json["seq_len"] = phase.seq_len;
    if (!prepared) json[kPackingRuleKey] = kPackingRule;
    plan["phases"].push_back(std::move(json));
  }
  const std::vector<std::uint64_t> counts = consumed(next_sample);
  for (std::size_t s = 0; s < known; ++s) {
    Json hashes = Json::array();
    for (const TokenSet* set : parts_->sources[s].sets) hashes.push_back(set->content_hash());
    plan["sources"].push_back({{"content_xxh3", std::move(hashes)}, {"consumed", counts[s]}});
  }
  return {content_hash(), plan.dump()};
}

void SampleStream::check_state(const State& saved, std::int64_t next_sample,
                               const std::string& checkpoint) const {
  const Json here = parse_json(*state(next_sample).plan, kPlan);
  if (!saved.plan) {  // written before plans existed: one whole set
    if (saved.content_hash != content_hash())
      fail(ErrorKind::usage, "--data contains other tokens than {} was trained on", checkpoint);
    if (here["phases"].size() != 1)
      differ(checkpoint, "the number of phases before it", here["phases"].dump(), "1");
    if (here["phases"][0].contains(kPackingRuleKey))
      differ(checkpoint, kPackingRuleKey, here["phases"][0][kPackingRuleKey].dump(), "1");
    return;
  }
  const std::string where = formatted("{}: {}", checkpoint, kPlan);
  const Json there = parse_json(*saved.plan, where);
  if (json_get<std::int64_t>(there, "version", where) != kStateVersion)
    fail(ErrorKind::data, "{}: version is not {}", where, kStateVersion);
  const Json& sources = json_member(there, "sources", where);
  check_settings(here["settings"], json_member(there, "settings", where), where, checkpoint);
  check_sources(here["sources"], sources, where, checkpoint);
  check_phases(here["phases"], json_member(there, "phases", where), where, checkpoint);
  if (here["sources"] != sources)
    differ(checkpoint, "the number of consumed samples", here["sources"].dump(), sources.dump());
}

}  // namespace trireme::data
