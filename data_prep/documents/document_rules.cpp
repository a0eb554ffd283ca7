#include "data_prep/documents/document_rules.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "data/shards/set_content.hpp"
#include "data_prep/identity.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::data_prep {
namespace {

std::vector<std::string> read_prompts(const std::string& path) {
  const std::string text = read_file(path);
  text::check_utf8(text, path);
  std::istringstream lines(text);
  std::vector<std::string> prompts;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) prompts.push_back(line);
  }
  return prompts;
}

text::ChatAugment read_augment(const ChatConfig& config) {
  text::ChatAugment augment;
  if (config.augment == "minimind") {
    augment.add_system = 0.2;
    augment.drop_empty_think = config.format == "minimind-v2.5" ? 0.95 : 0.8;
  }
  if (config.add_system >= 0) augment.add_system = config.add_system;
  if (config.drop_empty_think >= 0) augment.drop_empty_think = config.drop_empty_think;
  if (config.thinking_ratio >= 0) augment.thinking_ratio = config.thinking_ratio;
  augment.system_prompts = config.system_prompts.empty() ? text::default_system_prompts()
                                                         : read_prompts(config.system_prompts);
  augment.seed = static_cast<std::uint64_t>(config.seed);
  return augment;
}

/// Adds names as a list, resolved probabilities, the hash of the prompts, and the random seed.
void put_chat_identity(const DocumentRules& rules, Json& identity) {
  const text::ChatAugment& augment = rules.augment;
  if (!rules.fields.empty()) identity["fields"] = rules.fields;
  ChatConfig chat = rules.config.chat;
  chat.add_system = augment.add_system;
  chat.drop_empty_think = augment.drop_empty_think;
  put_fields(chat, {}, identity);
  if (contents_of(rules.config).has_pairs()) identity["cut_pairs"] = chat.cut_pairs;
  if (augment.add_system > 0) {
    std::string prompts;
    for (const std::string& prompt : augment.system_prompts) prompts += prompt + '\n';
    identity["system_prompts_xxh3"] = xxh3_128_hex(prompts);
  }
  if (augment.add_system > 0 || augment.drop_empty_think > 0 || augment.thinking_ratio)
    identity["seed"] = augment.seed;
}

}  // namespace

bool is_named(const std::vector<std::string>& ignore_fields, std::string_view field) {
  const std::string_view whole = field;
  field = field.substr(0, field.find(" ("));
  const std::size_t dot = field.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? field : field.substr(dot + 1);
  return std::any_of(ignore_fields.begin(), ignore_fields.end(), [&](const std::string& name) {
    return name == whole || name == field || name == last;
  });
}

DocumentRules read_rules(const DocumentConfig& config, std::int64_t seq_len) {
  DocumentRules rules{config, seq_len, on_bad_text_named(config.on_bad_text)};
  if (!config.chat.record_fields.empty()) rules.fields = split(config.chat.record_fields, ',');
  if (!config.ignore_fields.empty()) rules.ignore_fields = split(config.ignore_fields, ',');
  rules.augment = read_augment(config.chat);
  // The thoughts of earlier answers stay in a prompt, like in MiniMind.
  if (chat_form(config) == text::ChatForm::prompt) rules.augment.drop_empty_think = 0;
  if (chat_form(config) && !has_jinja_template(config.chat))
    rules.chat_template = text::shared_chat_template(config.chat.format);
  if (chat_form(config) && rules.augment.add_system > 0 && rules.augment.system_prompts.empty())
    fail(ErrorKind::data, "--system-prompts: the file has no line with text");
  return rules;
}

void use_jinja_template(DocumentRules& rules, text::Tokenizer& tokenizer) {
  ChatConfig& chat = rules.config.chat;
  if (!chat_form(rules.config) || !has_jinja_template(chat)) return;
  std::map<std::string, std::string> files = tokenizer.files();
  std::string where = "the chat template of the tokenizer";
  if (!chat.template_file.empty()) {
    constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
    where = chat.template_file;
    files["chat_template.jinja"] = read_file(chat.template_file, kMaxTemplateBytes);
    text::check_utf8(files["chat_template.jinja"], where);
    tokenizer = text::Tokenizer::from_files(files, "--tokenizer");
  }
  const std::string jinja = text::jinja_of_tokenizer(files);
  if (jinja.empty() && where == chat.template_file)
    fail(ErrorKind::data, "{} is empty. It must be a Jinja chat template", where);
  if (jinja.empty())
    fail(ErrorKind::usage,
         "--template tokenizer: the tokenizer has no chat template (chat_template.jinja, or "
         "chat_template in tokenizer_config.json). Give --template-file FILE or --template NAME");
  rules.chat_template = text::jinja_chat_template(jinja, where);
  chat.format = rules.chat_template->name;
  chat.template_file.clear();
}

void put_identity(const DocumentRules& rules, Json& identity) {
  DocumentConfig config = rules.config;
  std::vector<Field> parts = fields_of("text", config.text);
  for (Field& field : fields_of("chat", config.chat)) parts.push_back(std::move(field));
  if (!chat_form(config)) {
    put_fields(config.text, {}, identity);
  } else {
    put_chat_identity(rules, identity);
  }
  put_fields(config, parts, identity);
}

}  // namespace trireme::data_prep
