#include "text/spec/vocab_files.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/spec/tokenizer_spec.hpp"

namespace trireme::text {
namespace {

/// The files of one directory, parsed.
class VocabFiles {
 public:
  VocabFiles(const std::map<std::string, std::string>& files, std::string_view where)
      : files_(files), where_(where) {}

  [[nodiscard]] std::string made() const {
    const SortedJson config = object("tokenizer_config.json");
    const SortedJson name = config.value("tokenizer_class", SortedJson("GPT2Tokenizer"));
    const std::string kind = name.is_string() ? name.get<std::string>() : name.dump();
    const bool is_qwen = kind == "Qwen2Tokenizer" || kind == "Qwen2TokenizerFast";
    if (!is_qwen && kind != "GPT2Tokenizer" && kind != "GPT2TokenizerFast")
      fail(ErrorKind::data,
           "{}: tokenizer_class {} with vocab.json and merges.txt is not supported; supported: "
           "GPT2Tokenizer, Qwen2Tokenizer. Save the tokenizer with transformers, which writes "
           "tokenizer.json",
           where_, kind);
    const SortedJson byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", prefix_space(config)},
                                   {"trim_offsets", true},
                                   {"use_regex", !is_qwen}};
    SortedJson json = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens", added(config)},
        {"normalizer", nullptr},
        {"pre_tokenizer", byte_level},
        {"post_processor", nullptr},
        {"decoder", byte_level},
        {"model", {{"type", "BPE"}, {"vocab", object("vocab.json")}, {"merges", merges()}}}};
    if (is_qwen) {
      const std::string pattern(regex_of(SplitStep::qwen2));
      json["normalizer"] = {{"type", "NFC"}};
      json["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers",
                                {{{"type", "Split"},
                                  {"pattern", {{"Regex", pattern}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}},
                                 byte_level}}};
    }
    return json.dump();
  }

 private:
  /// Returns an empty object if the file is absent.
  [[nodiscard]] SortedJson object(const char* name) const {
    const auto file = files_.find(name);
    if (file == files_.end()) return SortedJson::object();
    const std::string path = formatted("{}/{}", where_, name);
    SortedJson json = parse_sorted_json(file->second, path, {.max_bytes = kMaxTokenizerFileBytes});
    if (!json.is_object())
      fail(ErrorKind::data, "{} is {}, must be an object", path, json.type_name());
    return json;
  }

  static bool prefix_space(const SortedJson& config) {
    const SortedJson value = config.value("add_prefix_space", SortedJson(false));
    return value.is_boolean() && value.get<bool>();
  }

  [[nodiscard]] SortedJson merges() const {
    SortedJson list = SortedJson::array();
    std::istringstream lines(files_.at("merges.txt"));
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty() && !line.starts_with("#version")) list.push_back(line);
    }
    return list;
  }

  /// Adds the contents of the special tokens of `json`: texts, objects or lists of these.
  static void add_special(const SortedJson& json, std::set<std::string>& special) {
    for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                            "cls_token", "mask_token", "additional_special_tokens"}) {
      const auto found = json.find(key);
      if (found == json.end()) continue;
      const SortedJson list = found->is_array() ? *found : SortedJson::array({*found});
      for (const SortedJson& token : list) {
        const SortedJson text = token.is_object() ? token.value("content", SortedJson()) : token;
        if (text.is_string()) special.insert(text.get<std::string>());
      }
    }
  }

  /// Returns the added tokens by id.
  [[nodiscard]] SortedJson added(const SortedJson& config) const {
    const SortedJson vocab = object("vocab.json");
    std::set<std::string> special;
    add_special(config, special);
    add_special(object("special_tokens_map.json"), special);
    std::map<std::uint64_t, SortedJson> tokens;
    const auto add = [&](const std::string& content, std::uint64_t id, const SortedJson& flags) {
      const auto flag = [&](const char* key, bool otherwise) {
        const auto found = flags.find(key);
        return found != flags.end() && found->is_boolean() ? found->get<bool>() : otherwise;
      };
      const bool is_special = flag("special", special.contains(content));
      tokens[id] = {{"id", id},
                    {"content", content},
                    {"single_word", flag("single_word", false)},
                    {"lstrip", flag("lstrip", false)},
                    {"rstrip", flag("rstrip", false)},
                    {"normalized", flag("normalized", !is_special)},
                    {"special", is_special}};
    };
    for (const std::string& content : special) {
      const auto found = vocab.find(content);
      if (found != vocab.end() && found->is_number_unsigned())
        add(content, found->get<std::uint64_t>(), SortedJson::object());
    }
    const SortedJson extra = object("added_tokens.json");  // must outlive items()
    for (const auto& [content, id] : extra.items()) {
      if (!id.is_number_unsigned())
        fail(ErrorKind::data, "{}/added_tokens.json: the id of '{}' is not a number", where_,
             content);
      add(content, id.get<std::uint64_t>(), SortedJson::object());
    }
    const SortedJson listed = config.value("added_tokens_decoder", SortedJson::object());
    for (const auto& [id, token] : listed.items()) {
      const bool is_id =
          !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
      const SortedJson content = token.is_object() ? token.value("content", SortedJson()) : token;
      if (!is_id || !content.is_string())
        fail(ErrorKind::data,
             "{}/tokenizer_config.json: added_tokens_decoder['{}'] must be an id with a content",
             where_, id);
      add(content.get<std::string>(), std::stoull(id), token);
    }
    SortedJson list = SortedJson::array();
    for (auto& [id, token] : tokens) list.push_back(std::move(token));
    return list;
  }

  const std::map<std::string, std::string>& files_;
  std::string where_;
};

}  // namespace

void add_tokenizer_json(std::map<std::string, std::string>& files, std::string_view where) {
  if (files.contains("tokenizer.json") || !files.contains("vocab.json") ||
      !files.contains("merges.txt"))
    return;
  files["tokenizer.json"] = VocabFiles(files, where).made();
}

}  // namespace trireme::text
