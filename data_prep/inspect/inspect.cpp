#include "data_prep/inspect/inspect.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/json_lines.hpp"
#include "data/shards/set_content.hpp"
#include "data_prep/inspect/inspect_document.hpp"

namespace trireme::data_prep {
namespace {

/// Counts the documents of a set by length in tokens. A preference pair counts twice: each side
/// with its prompt. A labeled answer counts once, with its prompt.
struct LengthHistogram {
  std::array<std::uint64_t, 65> count{};  // [b]: 2^(b-1) to 2^b - 1 tokens; [0]: empty
  std::uint64_t total = 0;
  std::uint64_t tokens = 0;
  std::uint64_t shortest = 0;
  std::uint64_t longest = 0;

  void add(std::uint64_t length) {
    ++count[static_cast<std::size_t>(std::bit_width(length))];
    shortest = total == 0 ? length : std::min(shortest, length);
    longest = std::max(longest, length);
    tokens += length;
    ++total;
  }
};

struct Bounds {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

Bounds bounds_of(std::size_t bucket) {
  if (bucket == 0) return {0, 0};
  const std::uint64_t from = std::uint64_t{1} << (bucket - 1);
  return {from, from - 1 + from};
}

/// Returns the range of buckets from the first to the last one that is not empty.
std::pair<std::size_t, std::size_t> used(const LengthHistogram& histogram) {
  std::size_t first = 0;
  std::size_t end = histogram.count.size();
  while (first < end && histogram.count[first] == 0) ++first;
  while (end > first && histogram.count[end - 1] == 0) --end;
  return {first, end};
}

/// Reads the document tables shard by shard, 8 bytes per document.
LengthHistogram length_histogram(const data::TokenSet& set) {
  LengthHistogram histogram;
  const bool is_answer = set.contents().sample == data::SampleForm::answer;
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    if (set.contents().has_pairs()) {
      const data::PairTable pairs = set.shard(s).pair_lengths();
      for (std::size_t i = 0; i < pairs.prompt_len.size(); ++i) {
        for (const std::uint32_t answer : {pairs.chosen_len[i], pairs.rejected_len[i]})
          if (!is_answer || answer > 0) histogram.add(std::uint64_t{pairs.prompt_len[i]} + answer);
      }
    } else {
      const std::vector<std::uint64_t> offsets = set.shard(s).document_offsets();
      for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        histogram.add(offsets[i + 1] - offsets[i]);
    }
  }
  return histogram;
}

/// Returns {"shortest", "longest", "mean", "buckets": [{"from", "to", "count"}, ...]} without the
/// empty buckets at both ends.
Json to_json(const LengthHistogram& histogram) {
  Json json = Json::object();
  json["shortest"] = histogram.shortest;
  json["longest"] = histogram.longest;
  json["mean"] = histogram.total == 0
                     ? 0.0
                     : static_cast<double>(histogram.tokens) / static_cast<double>(histogram.total);
  json["buckets"] = Json::array();
  const auto [first, end] = used(histogram);
  for (std::size_t bucket = first; bucket < end; ++bucket) {
    const Bounds bounds = bounds_of(bucket);
    json["buckets"].push_back(
        {{"from", bounds.from}, {"to", bounds.to}, {"count", histogram.count[bucket]}});
  }
  return json;
}

/// Returns one line with a bar per bucket.
std::string to_text(const LengthHistogram& histogram) {
  constexpr std::uint64_t kBar = 40;
  std::string text;
  const auto [first, end] = used(histogram);
  const std::uint64_t most = *std::max_element(histogram.count.begin(), histogram.count.end());
  for (std::size_t bucket = first; bucket < end; ++bucket) {
    const Bounds bounds = bounds_of(bucket);
    const std::uint64_t count = histogram.count[bucket];
    const auto bar = static_cast<std::size_t>((count * kBar + most - 1) / most);
    char line[80];
    std::snprintf(
        line, sizeof line, "%9llu - %-9llu %10llu ", static_cast<unsigned long long>(bounds.from),
        static_cast<unsigned long long>(bounds.to), static_cast<unsigned long long>(count));
    text += formatted("{}{}\n", line, std::string(bar, '#'));
  }
  return text;
}

struct Sizes {
  std::uint64_t sequences = 0;  // at the prepared length
  std::uint64_t bytes = 0;
};

Sizes sizes_of(const data::Manifest& manifest) {
  Sizes sizes;
  for (const data::ShardEntry& shard : manifest.shards) {
    sizes.bytes += shard.bytes;
    const auto pack = shard.packs.find(manifest.seq_len);
    if (pack != shard.packs.end()) sizes.sequences += pack->second;
  }
  return sizes;
}

double padding_share(const data::Manifest& manifest, const Sizes& sizes) {
  const double room = static_cast<double>(sizes.sequences) * static_cast<double>(manifest.seq_len);
  return room == 0 ? 0 : 1 - static_cast<double>(manifest.counts.tokens) / room;
}

std::string packing_text(const data::Manifest& manifest, const Sizes& sizes) {
  if (manifest.contents().sample == data::SampleForm::answer)
    return formatted("\nanswers         of at most {} tokens with their prompts", manifest.seq_len);
  if (manifest.contents().has_pairs())
    return formatted("\npairs           of at most {} tokens per side", manifest.seq_len);
  if (manifest.contents().has_prompts())
    return formatted("\nprompts         of at most {} tokens", manifest.seq_len);
  char padding[32];
  std::snprintf(padding, sizeof padding, "%.3f %%", 100 * padding_share(manifest, sizes));
  return formatted("\nsequences       {} of {} tokens, padding {}", sizes.sequences,
                   manifest.seq_len, padding);
}

Json id_json(const std::optional<std::int64_t>& id) {
  return id ? Json(*id) : Json(nullptr);
}

std::string id_text(const std::optional<std::int64_t>& id) {
  return id ? std::to_string(*id) : "none";
}

/// Returns " (35 too long)", or "" if the count is 0.
std::string part_of(std::uint64_t count, const char* what) {
  return count == 0 ? std::string() : formatted(" ({} {})", count, what);
}

}  // namespace

void check(const InspectConfig& config, Problems& problems) {
  if (config.line < InspectConfig::kNone || config.sample < InspectConfig::kNone)
    problems.add("--line and --sample must be 0 or more");
  if (config.line >= 0 && config.sample >= 0)
    problems.add("--line and --sample exclude each other");
}

std::string inspect_json(const data::TokenSet& set) {
  const data::Manifest& manifest = set.manifest();
  const Sizes sizes = sizes_of(manifest);
  Json json = Json::object();
  json["version"] = 1;
  json["kind"] = manifest.kind;
  if (!manifest.record_format.empty()) json["record_format"] = manifest.record_format;
  const Json counts = data::counts_to_json(manifest.counts);
  for (const auto& item : counts.items()) json[item.key()] = item.value();
  if (manifest.contents().is_masked())
    json["untrained_messages"] = manifest.counts.untrained_messages;
  json["vocab_size"] = manifest.vocab_size;
  json["bos_id"] = id_json(manifest.bos_id);
  json["eos_id"] = id_json(manifest.eos_id);
  json["pad_id"] = id_json(manifest.pad_id);
  json["seq_len"] = manifest.seq_len;
  json["sequences"] = sizes.sequences;
  json["padding"] = padding_share(manifest, sizes);
  json["lengths"] = to_json(length_histogram(set));
  json["shards"] = manifest.shards.size();
  json["size_bytes"] = sizes.bytes;
  json["tokenizer_hash"] = manifest.tokenizer_hash;
  json["content_xxh3"] = manifest.content_xxh3;
  json["config"] = parse_json(manifest.config_json, "config");
  json["sources"] = Json::array();
  for (const data::SourceEntry& source : manifest.sources)
    json["sources"].push_back(
        {{"name", source.name}, {"size", source.size}, {"position", source.position}});
  json["bad"] = manifest.bad;
  if (!manifest.ignored_fields.empty()) json["ignored_fields"] = manifest.ignored_fields;
  return escape_json_controls(json_line(json));
}

std::string inspect_text(const data::TokenSet& set) {
  constexpr std::size_t kShownBad = 10;
  constexpr std::size_t kShownTokens = 300;
  const data::Manifest& manifest = set.manifest();
  const data::ShardCounts& counts = manifest.counts;
  const Sizes sizes = sizes_of(manifest);
  std::string text = formatted(
      "kind            {}\ndocuments       {}\ntokens          {}\ntarget tokens   {}{}\nvocabulary      {} (bos {}, eos {}, pad {})\nshards          {}, {} bytes\nbad lines       {}\nreplaced chars  {}\ntruncated       {}{}{}\ndropped         {}{}{}\ncontent         {}\noptions         {}\n",
      manifest.kind, counts.documents, counts.tokens, counts.target_tokens,
      packing_text(manifest, sizes), manifest.vocab_size, id_text(manifest.bos_id),
      id_text(manifest.eos_id), id_text(manifest.pad_id), manifest.shards.size(), sizes.bytes,
      counts.bad_lines, counts.replaced_chars, counts.truncated,
      part_of(counts.cut_prompts, "the prompt lost its beginning"),
      part_of(counts.cut_answers, "a side lost its end"), counts.dropped,
      part_of(counts.dropped_long, "too long"), part_of(counts.dropped_equal, "of equal sides"),
      manifest.content_xxh3, manifest.config_json);
  if (!manifest.record_format.empty())
    text += formatted("record form     {}\n", manifest.record_format);
  if (counts.untrained_messages != 0)
    text += formatted("untrained       {} answers\n", counts.untrained_messages);
  for (const data::SourceEntry& source : manifest.sources)
    text += formatted("source          {}, {} {}s\n", source.name, source.size, source.position);
  for (std::size_t i = 0; i < std::min(kShownBad, manifest.bad.size()); ++i)
    text += formatted("invalid record  {}\n", manifest.bad[i]);
  if (counts.bad_lines > kShownBad)
    text += formatted("                ({} more)\n", counts.bad_lines - kShownBad);
  for (const auto& [name, records] : manifest.ignored_fields)
    text += formatted("ignored field   {}, in {} records\n", name, records);
  text += formatted("{}\n{}",
                    manifest.contents().sample == data::SampleForm::pair
                        ? "tokens of each side of a pair"
                        : "tokens of a document",
                    to_text(length_histogram(set)));
  if (counts.documents != 0)
    text += formatted("document 0, {}", document_text(set, find_document(set, 0), kShownTokens));
  return escape_controls(text);
}

}  // namespace trireme::data_prep
