#include "checkpoint/exchange/special_tokens.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::array kRoles{"bos", "eos", "pad"};

std::optional<Json> parse_carried(const std::map<std::string, std::string>& files,
                                  const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) return std::nullopt;
  Json json = parse_json(found->second, name);
  if (!json.is_object()) fail(ErrorKind::data, "{} is not a JSON object", name);
  return json;
}

/// Returns the text of a token given as "x" or {"content": "x", ...}; nullopt if null or absent.
std::optional<std::string> token_content(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && found->at("content").is_string())
    return found->at("content").get<std::string>();
  return std::nullopt;
}

bool is_id(const Json& value) {
  return value.is_number_integer() && value >= 0;
}

constexpr std::int64_t kMostIds = std::int64_t{1} << 40;  // limit for ids of a damaged file

SortedJson parse_file(const std::map<std::string, std::string>& files, const char* name,
                      const std::string& where) {
  const auto found = files.find(name);
  return found == files.end() ? SortedJson()
                              : parse_sorted_json(found->second, formatted("{}/{}", where, name));
}

SortedJson member(const SortedJson& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : SortedJson();
}

std::int64_t past(const SortedJson& id) {
  if (!id.is_number_unsigned()) return 0;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(id.get<std::uint64_t>(), kMostIds)) + 1;
}

}  // namespace

SpecialTokenIds listed_token_ids(const Json& config, std::string_view where) {
  SpecialTokenIds ids;
  if (!config.is_object()) fail(ErrorKind::data, "{} is not a JSON object", where);
  for (const char* role : kRoles) {
    const std::string key = formatted("{}_token_id", role);
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    const bool may_be_list = std::string_view(role) == "eos";
    const bool is_list = found->is_array() && may_be_list;
    if (is_list && std::all_of(found->begin(), found->end(), is_id)) {
      if (!found->empty()) ids[role] = found->get<std::vector<std::int64_t>>();
    } else if (is_id(*found)) {
      ids[role] = {found->get<std::int64_t>()};
    } else if (may_be_list) {
      fail(ErrorKind::data, "{}: {} = {}, must be a token id, a list of them or null", where, key,
           found->dump().substr(0, 100));
    }
  }
  return ids;
}

SpecialTokenIds special_token_ids(const std::map<std::string, std::string>& files) {
  SpecialTokenIds ids;
  if (const auto generation = parse_carried(files, kGenerationConfigFile)) {
    const SpecialTokenIds listed = listed_token_ids(*generation, kGenerationConfigFile);
    if (listed.contains("eos")) ids["eos"] = listed.at("eos");
  }
  const auto config = parse_carried(files, "tokenizer_config.json");
  const auto tokenizer = parse_carried(files, "tokenizer.json");
  if (!config || !tokenizer || !tokenizer->contains("added_tokens")) return ids;
  for (const char* role : kRoles) {
    const auto content = token_content(*config, formatted("{}_token", role));
    if (!content) continue;
    for (const Json& token : tokenizer->at("added_tokens")) {
      if (!token.is_object() || !token.contains("id") || token_content(token, "content") != content)
        continue;
      const auto id = json_get<std::int64_t>(token, "id", "tokenizer.json");
      std::vector<std::int64_t>& known = ids[role];
      if (std::find(known.begin(), known.end(), id) == known.end()) known.push_back(id);
    }
  }
  return ids;
}

Json id_json(const std::vector<std::int64_t>& ids) {
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

std::string hf_generation_text(const SpecialTokenIds& special_ids) {
  Json json = {{"_from_model_config", true}};
  for (const auto& [role, ids] : special_ids) json[formatted("{}_token_id", role)] = id_json(ids);
  return json.dump(2) + "\n";
}

std::string special_tokens_map_text(const std::map<std::string, std::string>& files) {
  const auto config = parse_carried(files, "tokenizer_config.json");
  if (!config) return "";
  Json json = Json::object();
  for (const char* role : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
    const auto content = token_content(*config, formatted("{}_token", role));
    if (content) json[formatted("{}_token", role)] = *content;
  }
  if (config->contains("additional_special_tokens"))
    json["additional_special_tokens"] = config->at("additional_special_tokens");
  return json.dump(2) + "\n";
}

std::int64_t num_token_ids(const std::map<std::string, std::string>& files,
                           const std::string& where) {
  std::int64_t count = 0;
  const SortedJson tokenizer = parse_file(files, "tokenizer.json", where);
  const SortedJson vocab = member(member(tokenizer, "model"), "vocab");
  if (vocab.is_array())
    count = static_cast<std::int64_t>(vocab.size());  // Unigram: the position is the id
  if (vocab.is_object()) {
    for (const SortedJson& id : vocab) count = std::max(count, past(id));
  }
  for (const SortedJson& token : member(tokenizer, "added_tokens"))
    count = std::max(count, past(member(token, "id")));
  const SortedJson added =
      member(parse_file(files, "tokenizer_config.json", where), "added_tokens_decoder");
  if (added.is_object()) {
    for (const auto& [id, token] : added.items()) {
      if (const auto number = parse_integer(id))
        count = std::max(count, std::min(*number, kMostIds) + 1);
    }
  }
  return count;
}

void check_tokenizer_fits(std::int64_t num_ids, const model::ModelConfig& config,
                          std::string_view where) {
  if (num_ids <= config.vocab_size) return;
  fail(
      ErrorKind::data,
      "{}: the tokenizer has {} ids (added tokens included), but the embedding has only {} rows: the tokenizer belongs to another model, or the weights were not resized to it",
      where, num_ids, config.vocab_size);
}

}  // namespace trireme::checkpoint
