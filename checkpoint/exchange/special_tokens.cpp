#include "checkpoint/exchange/special_tokens.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"

namespace trireme {
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

}  // namespace trireme
