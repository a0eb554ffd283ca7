#include "text/learn/tokenizer_writer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/files/json.hpp"

namespace trireme::text {
namespace {

std::string quoted(const std::string& text) {
  return Json(text).dump();
}

/// Returns the ByteLevel object, which is both pre-tokenizer and decoder.
std::string byte_level_step(bool add_prefix_space, bool use_regex, const std::string& indent) {
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  const std::string line = ",\n" + indent + "  ";
  return "{\n" + indent + "  \"type\": \"ByteLevel\"" + line +
         "\"add_prefix_space\": " + boolean(add_prefix_space) + line + "\"trim_offsets\": true" +
         line + "\"use_regex\": " + boolean(use_regex) + "\n" + indent + "}";
}

/// ByteLevel has GPT-2's pattern built in. Any other pattern needs a Split step before it.
std::string pre_tokenizer(SplitStep pattern) {
  if (pattern == SplitStep::gpt2) return byte_level_step(false, true, "  ");
  return R"({
    "type": "Sequence",
    "pretokenizers": [
      {
        "type": "Split",
        "pattern": {
          "Regex": )" +
         quoted(std::string(regex_of(pattern))) + R"(
        },
        "behavior": "Isolated",
        "invert": false
      },
      )" +
         byte_level_step(false, false, "      ") + "\n    ]\n  }";
}

Json describe(std::size_t id, const ReservedToken& token) {
  return {
      {"id", id},        {"content", token.content}, {"single_word", false},    {"lstrip", false},
      {"rstrip", false}, {"normalized", false},      {"special", token.special}};
}

std::string added_tokens(const std::vector<ReservedToken>& reserved) {
  Json list = Json::array();
  for (std::size_t id = 0; id < reserved.size(); ++id) list.push_back(describe(id, reserved[id]));
  std::string text = list.dump(2);
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, "  ");
  return text;
}

bool has(const std::vector<ReservedToken>& reserved, const std::string& content) {
  return std::any_of(reserved.begin(), reserved.end(),
                     [&](const ReservedToken& token) { return token.content == content; });
}

}  // namespace

std::string write_tokenizer_json(const std::vector<std::string>& tokens,
                                 const std::vector<std::pair<std::uint32_t, std::uint32_t>>& merges,
                                 const std::vector<ReservedToken>& reserved, SplitStep pattern) {
  // Written by hand, because there are thousands of keys and the layout must not depend on a
  // library.
  std::string text = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": )";
  text += added_tokens(reserved);
  text += ",\n  \"normalizer\": null,\n  \"pre_tokenizer\": " + pre_tokenizer(pattern);
  text += ",\n  \"post_processor\": null,\n  \"decoder\": " + byte_level_step(true, true, "  ");
  text += R"(,
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {)";
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    text += (id == 0 ? "\n      " : ",\n      ") + quoted(tokens[id]) + ": " + std::to_string(id);
  }
  text += tokens.empty() ? "},\n    \"merges\": [" : "\n    },\n    \"merges\": [";
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    text += rank == 0 ? "\n      [\n        " : ",\n      [\n        ";
    text += quoted(tokens[merges[rank].first]) + ",\n        " +
            quoted(tokens[merges[rank].second]) + "\n      ]";
  }
  text += merges.empty() ? "]\n  }\n}" : "\n    ]\n  }\n}";
  return text;
}

std::string write_tokenizer_config(const BpeTrainOptions& options) {
  Json config;
  config["add_bos_token"] = false;
  config["add_eos_token"] = false;
  config["add_prefix_space"] = false;
  config["added_tokens_decoder"] = Json::object();
  for (std::size_t id = 0; id < options.reserved.size(); ++id) {
    Json token = describe(id, options.reserved[id]);
    token.erase("id");
    config["added_tokens_decoder"][std::to_string(id)] = std::move(token);
  }
  const auto role = [&config](const char* key, const std::string& token) {
    config[key] = token.empty() ? Json(nullptr) : Json(token);
  };
  role("bos_token", options.bos_token);
  if (has(options.reserved, "<|im_start|>") && has(options.reserved, "<|im_end|>"))
    config["chat_template"] = kNewTokenizerTemplate;
  config["clean_up_tokenization_spaces"] = false;
  role("eos_token", options.eos_token);
  config["model_input_names"] = {"input_ids", "attention_mask"};
  config["model_max_length"] = options.model_max_length;
  role("pad_token", options.pad_token);
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  role("unk_token", options.unk_token);
  return config.dump(2) + "\n";
}

}  // namespace trireme::text
