#include "checkpoint/tokenizer/model_template.hpp"

#include <nlohmann/json.hpp>

#include "checkpoint/format/state.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "text/chat/chat_template.hpp"
#include "text/learn/tokenizer_writer.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kCustom = "custom-";

/// Accepts a list too: older versions of transformers write several named templates as a list.
std::string default_template(const Json& templates) {
  if (templates.is_string()) return templates.get<std::string>();
  if (!templates.is_array()) return "";
  for (const Json& one : templates) {
    if (one.is_object() && one.value("name", Json()) == "default" &&
        one.value("template", Json()).is_string())
      return one.at("template").get<std::string>();
  }
  return "";
}

std::string shown(const std::string& name) {
  if (!is_custom_template(name)) return name;
  return formatted("an unknown template ({}), not one of {}", name, text::chat_template_names());
}

}  // namespace

std::string jinja_of(const std::map<std::string, std::string>& files) {
  if (const auto file = files.find("chat_template.jinja"); file != files.end()) return file->second;
  const auto file = files.find("tokenizer_config.json");
  if (file == files.end()) return "";
  const Json config = parse_json(file->second, file->first);
  return config.is_object() ? default_template(config.value("chat_template", Json())) : "";
}

std::string template_of_files(const std::map<std::string, std::string>& files) {
  const std::string jinja = jinja_of(files);
  if (jinja.empty() || jinja == text::kNewTokenizerTemplate) return "";
  if (const text::ChatTemplate* found = text::nearest_chat_template(jinja)) return found->name;
  return cat(kCustom, xxh3_128_hex(jinja).substr(0, 12));
}

bool is_custom_template(std::string_view name) {
  return name.starts_with(kCustom);
}

std::string template_of(const std::map<std::string, std::string>& values) {
  for (const char* key : {kChatTemplateValue, kImportedTemplateValue}) {
    if (const auto found = values.find(key); found != values.end()) return found->second;
  }
  return "";
}

std::string template_note(const std::string& name, std::string_view where) {
  if (name.empty()) return formatted("{}: the model has no chat template", where);
  if (!is_custom_template(name))
    return formatted("{}: its chat template is recognized as {}", where, name);
  return formatted(
      "{}: its chat template is {}. Chat data sets are packed with one of these: training, eval and "
      "dpo-reference need --allow-other-template; generate, serve and chat need --chat-template",
      where, shown(name));
}

void check_same_template(const TemplateComparison& pair, bool allow_other) {
  if (allow_other || pair.set_template.empty() || pair.model_template.empty() ||
      pair.set_template == pair.model_template)
    return;
  const std::string repack =
      is_custom_template(pair.model_template)
          ? std::string("Give")
          : formatted("Pack the data set with --template {}, or give", pair.model_template);
  fail(
      ErrorKind::usage,
      "{} is packed with the chat template {}, but {} has {}. {} --allow-other-template (in a run's configuration: data.allow_template_change = true)",
      pair.set, pair.set_template, pair.model, shown(pair.model_template), repack);
}

}  // namespace trireme::checkpoint
