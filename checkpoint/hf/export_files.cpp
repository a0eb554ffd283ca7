#include "checkpoint/hf/export_files.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/hf_family.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/join.hpp"
#include "text/chat/chat_template.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
constexpr const char* kChatTemplateFile = "chat_template.jinja";

}  // namespace

std::string family_value(const Checkpoint& checkpoint) {
  const auto found = checkpoint.manifest().values.find(kHfFamilyValue);
  return found == checkpoint.manifest().values.end() ? "" : found->second;
}

namespace {

std::map<std::string, std::string> carried_files(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> files;
  for (const SavedFile& file : checkpoint.manifest().files)
    files[file.name] = checkpoint.file(file.name);
  return files;
}

/// Returns a row of the model card; "" for a model without experts.
std::string experts_row(const model::ModelConfig& config) {
  const model::MoeConfig& moe = config.moe;
  if (!moe.on()) return "";
  return formatted("| experts | {} of {} per token in {} layers, width {} |\n",
                   moe.num_experts_per_tok, moe.num_experts,
                   moe.layers_with_experts(config.num_layers), moe.moe_intermediate_size);
}

std::string model_card(const Checkpoint& checkpoint, const model::ModelConfig& config,
                       DType dtype) {
  return formatted(
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n# Model exported by Trireme\n\n| | |\n|---|---|\n| parameters | {} |\n| shape | {} layers, width {}, {} query and {} key-value heads of {}, MLP {} |\n{}| vocabulary | {} |\n| architecture | {}{} |\n| weights | {} |\n| run | {}, step {} |\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\nmodel = AutoModelForCausalLM.from_pretrained(\"path/to/this/directory\")\ntokenizer = AutoTokenizer.from_pretrained(\"path/to/this/directory\")\n```\n",
      config.num_parameters(), config.num_layers, config.hidden_size, config.num_heads,
      config.num_kv_heads, config.head_dim, config.intermediate_size, experts_row(config),
      config.vocab_size, hf_family(config, family_value(checkpoint)).model_type,
      config.tie_embeddings ? ", tied embedding" : "", dtype_name(dtype),
      checkpoint.manifest().run_id, checkpoint.step());
}

/// Sets the tokenizer class. Without this class, transformers would not read tokenizer.json. It
/// would build a tokenizer from the vocabulary, with the rules of a model family.
void name_tokenizer_class(std::map<std::string, std::string>& files, const std::string& where) {
  constexpr const char* kFast = "PreTrainedTokenizerFast";
  if (!files.contains("tokenizer.json")) return;
  Json config =
      files.contains(kTokenizerConfigFile)
          ? parse_json(files[kTokenizerConfigFile], formatted("{}/{}", where, kTokenizerConfigFile))
          : Json{};
  const auto known = config.find("tokenizer_class");
  if (known != config.end() && (*known == kFast || *known == "TokenizersBackend")) return;
  config["tokenizer_class"] = kFast;
  files[kTokenizerConfigFile] = config.dump(2) + "\n";
}

/// Writes the chat template to both files in which transformers looks for it.
void put_chat_template(const Checkpoint& checkpoint, std::map<std::string, std::string>& files) {
  const auto name = checkpoint.manifest().values.find(kChatTemplateValue);
  if (name == checkpoint.manifest().values.end()) return;
  if (is_custom_template(name->second)) return;  // the tokenizer's own files have it
  const std::string where = checkpoint.path().string();
  std::string jinja;
  if (comm::capture([&] { jinja = text::chat_template(name->second).jinja(); })) {
    fail(ErrorKind::data,
         "{}: value {} = '{}' is unknown (known: {}); was it written by a newer version?", where,
         kChatTemplateValue, name->second, text::chat_template_names());
  }
  files[kChatTemplateFile] = jinja;
  const auto config = files.find(kTokenizerConfigFile);
  if (config == files.end()) return;
  Json json = parse_json(config->second, formatted("{}/{}", where, kTokenizerConfigFile));
  json["chat_template"] = jinja;
  config->second = json.dump(2) + "\n";
}

/// Adds the end of a turn to the tokens that end a text, if a chat template was trained. Returns
/// true if it was not one of them.
bool add_turn_end(const Checkpoint& checkpoint, const std::map<std::string, std::string>& files,
                  SpecialTokenIds& ids) {
  const auto end =
      trained_turn_end(checkpoint.manifest().values, files, checkpoint.path().string());
  if (!end) return false;
  std::vector<std::int64_t>& ends = ids["eos"];
  if (std::ranges::find(ends, std::int64_t{*end}) != ends.end()) return false;
  ends.push_back(*end);
  return true;
}

/// Returns the text of generation_config.json with other tokens that end a text.
std::string with_ends(const std::string& text, const std::vector<std::int64_t>& ends) {
  Json json = parse_json(text, kGenerationConfigFile);
  json["eos_token_id"] = id_json(ends);
  return json.dump(2) + "\n";
}

}  // namespace

std::map<std::string, std::string> exported_tokenizer(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> files = carried_files(checkpoint);
  name_tokenizer_class(files, checkpoint.path().string());
  put_chat_template(checkpoint, files);
  if (!files.contains("special_tokens_map.json")) {
    const std::string text = special_tokens_map_text(files);
    if (!text.empty()) files["special_tokens_map.json"] = text;
  }
  files.erase("config.toml");  // belongs to the run, not to the model
  files.erase(kGenerationConfigFile);
  return files;
}

std::map<std::string, std::string> export_files(const Checkpoint& checkpoint,
                                                const model::ModelConfig& config, DType dtype) {
  std::map<std::string, std::string> files = exported_tokenizer(checkpoint);
  const std::map<std::string, std::string> carried = carried_files(checkpoint);
  SpecialTokenIds special_ids = special_token_ids(carried);
  const bool is_new_end = add_turn_end(checkpoint, carried, special_ids);
  if (const auto file = carried.find(kGenerationConfigFile); file == carried.end()) {
    files[kGenerationConfigFile] = hf_generation_text(special_ids);
  } else {
    files[kGenerationConfigFile] =
        is_new_end ? with_ends(file->second, special_ids.at("eos")) : file->second;
  }
  files["config.json"] = hf_config_text(config, dtype, special_ids, family_value(checkpoint));
  files["README.md"] = model_card(checkpoint, config, dtype);
  return files;
}

void check_exported_config(const std::filesystem::path& directory,
                           const model::ModelConfig& config) {
  const std::filesystem::path path = directory / "config.json";
  const auto differences = hf_differences(config, model_from_hf(read_json(path), path.string()));
  if (!differences.empty())
    fail(ErrorKind::internal, "{} reads back without {}", path.string(), joined(differences, ", "));
}

}  // namespace trireme::checkpoint
