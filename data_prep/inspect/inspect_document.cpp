#include "data_prep/inspect/inspect_document.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/json_lines.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/input/input_format.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {
namespace {

/// Token ids and a flag for each: 1 if it is a target.
struct Shown {
  std::vector<std::uint32_t> ids;
  std::vector<int> target;
};

Shown shown(const std::vector<std::int64_t>& ids, const std::vector<data::Span>& spans) {
  Shown result;
  result.ids.assign(ids.begin(), ids.end());
  result.target.assign(ids.size(), 0);
  for (const data::Span& span : spans)
    std::fill(result.target.begin() + span.begin, result.target.begin() + span.end, 1);
  if (!ids.empty()) result.target[0] = 0;  // no token predicts the first one
  return result;
}

Shown shown_document(const data::TokenShard& shard, std::uint64_t doc) {
  const std::uint64_t begin = shard.document_begin(doc);
  std::vector<std::int64_t> ids(shard.document_begin(doc + 1) - begin);
  shard.read_tokens(begin, ids);
  const std::vector<data::Span> all{{0, static_cast<std::uint32_t>(ids.size())}};
  return shown(ids, shard.has_spans() ? shard.target_spans(doc) : all);
}

Json to_json(const Shown& row, const text::Tokenizer& tokenizer) {
  Json json = Json::object();
  json["ids"] = row.ids;
  json["text"] = tokenizer.decode(row.ids);
  json["target"] = row.target;
  return json;
}

std::string to_text(const Shown& row, const text::Tokenizer& tokenizer, std::size_t max_tokens) {
  std::string text;
  const std::size_t count = std::min(max_tokens, row.ids.size());
  for (std::size_t at = 0; at < count;) {
    std::size_t end = at;
    while (end < count && row.target[end] == row.target[at]) ++end;
    const std::string run = tokenizer.decode(std::span(row.ids).subspan(at, end - at));
    text += row.target[at] != 0 ? formatted("[[{}]]", run) : run;
    at = end;
  }
  if (count < row.ids.size()) text += formatted(" ... ({} tokens more)", row.ids.size() - count);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

Json record_json(const data::TokenShard& shard, std::uint64_t doc) {
  return parse_json(shard.text(shard.contents().texts.front(), doc),
                    formatted("{}:{}", shard.path().string(), data::schema::kRecordBytes));
}

/// A side of a document with its name.
struct NamedSide {
  const char* name;
  const data::Pair::Side& side;
};

/// Returns the two sides. An answer of a kto set has its tokens in the side of its label, and the
/// other side is only the prompt.
std::array<NamedSide, 2> named_sides(const data::SetContent& content, const data::Pair& pair) {
  const bool is_answer = content.sample == data::SampleForm::answer;
  return {NamedSide{is_answer ? "desirable" : "chosen", pair.chosen},
          NamedSide{is_answer ? "undesirable" : "rejected", pair.rejected}};
}

struct Origin {
  std::string source;
  std::string word;  // before the position: "byte" or "row"
  std::uint64_t offset = 0;
};

Origin origin_of(const data::TokenShard& shard, std::uint64_t doc) {
  const std::string where = formatted("{}:{}", shard.path().string(), data::schema::kSources);
  const Json sources = parse_json(shard.sources_json(), where);
  const std::uint32_t source = shard.document_sources()[doc];
  if (source >= sources.size()) fail(ErrorKind::data, "{}: has no source {}", where, source);
  const bool has_word = sources[source].contains("position");
  return {json_get<std::string>(sources[source], "name", where),
          has_word ? json_get<std::string>(sources[source], "position", where) : "byte",
          shard.document_source_offsets()[doc]};
}

}  // namespace

DocumentLocation find_line(const data::TokenSet& set, std::uint64_t line) {
  if (set.manifest().sources.empty())
    fail(ErrorKind::usage, "{} does not name its inputs", set.directory().string());
  const std::string& input = set.manifest().sources.front().name;
  std::uint64_t before = 0;  // lines of the input in earlier shards
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    const data::TokenShard& shard = set.shard(s);
    const std::string where = formatted("{}:{}", shard.path().string(), data::schema::kSources);
    const Json sources = parse_json(shard.sources_json(), where);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (json_get<std::string>(sources[i], "name", where) != input) continue;
      if (!sources[i].contains("lines"))
        fail(ErrorKind::usage, "{} was packed without line numbers", set.directory().string());
      const auto lines = json_get<std::uint64_t>(sources[i], "lines", where);
      if (line - before >= lines) {
        before += lines;
        continue;
      }
      const std::vector<std::uint32_t> doc_sources = shard.document_sources();
      const std::vector<std::uint32_t> doc_lines = shard.document_lines();
      for (std::size_t doc = 0; doc < doc_lines.size(); ++doc) {
        if (doc_sources[doc] == i && doc_lines[doc] == line - before) return {s, doc};
      }
      fail(
          ErrorKind::usage,
          "line {} of {} gave no document: it is blank, invalid or dropped (`trireme-data inspect {}` lists the invalid ones)",
          line, input, set.directory().string());
    }
  }
  fail(ErrorKind::usage, "--line {}: {} has {} lines, from 0", line, input, before);
}

DocumentLocation find_document(const data::TokenSet& set, std::uint64_t index) {
  std::uint64_t rest = index;
  const auto& shards = set.manifest().shards;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    if (rest < shards[s].counts.documents) return {s, rest};
    rest -= shards[s].counts.documents;
  }
  fail(ErrorKind::usage, "--sample {}: {} has {} documents, from 0", index,
       set.directory().string(), set.manifest().counts.documents);
}

std::string document_json(const data::TokenSet& set, const DocumentLocation& place) {
  const data::TokenShard& shard = set.shard(place.shard);
  const text::Tokenizer tokenizer =
      text::Tokenizer::from_files(set.tokenizer_files(), set.directory().string());
  const Origin origin = origin_of(shard, place.doc);
  Json json = Json::object();
  json["source"] = origin.source;
  json["offset"] = origin.offset;
  json["position"] = origin.word;
  if (shard.contents().has_pairs()) {
    const data::Pair pair = shard.pair(place.doc);
    json["prompt_len"] = pair.prompt_len;
    for (const auto& [name, side] : named_sides(shard.contents(), pair))
      json[name] = to_json(shown(side.ids, side.targets), tokenizer);
  } else {
    json.update(to_json(shown_document(shard, place.doc), tokenizer));
    if (shard.contents().has_prompts()) json["record"] = record_json(shard, place.doc);
  }
  return escape_json_controls(json_line(json));
}

std::string document_text(const data::TokenSet& set, const DocumentLocation& place,
                          std::size_t max_tokens) {
  const data::TokenShard& shard = set.shard(place.shard);
  const text::Tokenizer tokenizer =
      text::Tokenizer::from_files(set.tokenizer_files(), set.directory().string());
  const Origin origin = origin_of(shard, place.doc);
  std::string text = formatted("from {}; targets in [[ ]]\n",
                               record_location(origin.source, origin.word, origin.offset));
  if (shard.contents().has_pairs()) {
    const data::Pair pair = shard.pair(place.doc);
    for (const auto& [name, side] : named_sides(shard.contents(), pair)) {
      if (shard.contents().sample == data::SampleForm::answer && side.targets.empty()) continue;
      text += formatted("--- {}\n", name);
      text += to_text(shown(side.ids, side.targets), tokenizer, max_tokens);
    }
  } else {
    text += "---\n" + to_text(shown_document(shard, place.doc), tokenizer, max_tokens);
    if (shard.contents().has_prompts())
      text += formatted("--- record\n{}\n", record_json(shard, place.doc).dump());
  }
  return escape_controls(text);
}

}  // namespace trireme::data_prep
