#include "checkpoint/tokenizer/model_template.hpp"

#include <nlohmann/json.hpp>

#include "checkpoint/format/state.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/own_format.hpp"
#include "text/learn/tokenizer_writer.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kCustom = "custom-";

std::string shown(const std::string& name) {
  if (!is_custom_template(name)) return name;
  return formatted("a Jinja template ({}), not one of {}", name, text::chat_template_names());
}

}  // namespace

std::string jinja_of(const std::map<std::string, std::string>& files) {
  return text::jinja_of_tokenizer(files);
}

std::string template_of_files(const std::map<std::string, std::string>& files) {
  const std::string jinja = jinja_of(files);
  if (jinja.empty() || jinja == text::kNewTokenizerTemplate) return "";
  const text::ChatTemplatePtr own = text::own_chat_format(jinja, "the chat template").format;
  return own != nullptr ? own->name : text::custom_template_name(jinja);
}

std::string refusal_of_files(const std::map<std::string, std::string>& files,
                             std::string_view where) {
  const std::string jinja = jinja_of(files);
  if (jinja.empty()) return "";
  return text::refusal_note(
      text::own_chat_format(jinja, formatted("{}: the chat template", where)));
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

std::string jinja_name_of(const std::map<std::string, std::string>& values) {
  const auto found = values.find(kImportedJinjaValue);
  return found == values.end() ? "" : found->second;
}

std::string template_note(const std::string& name, std::string_view where) {
  if (name.empty()) return formatted("{}: the model has no chat template", where);
  if (!is_custom_template(name))
    return formatted("{}: its chat template is recognized as {}", where, name);
  return formatted(
      "{}: its chat template is {}. Pack chats with --template tokenizer; generate, serve and chat "
      "use the Jinja template",
      where, shown(name));
}

void check_same_template(const TemplateComparison& pair, bool allow_other) {
  if (allow_other || pair.set_template.empty() || pair.model_template.empty() ||
      pair.set_template == pair.model_template || pair.set_template == pair.model_jinja)
    return;
  const std::string repack =
      is_custom_template(pair.model_template)
          ? std::string(
                "Pack the data set with --template tokenizer and the tokenizer of the model, or give")
          : formatted("Pack the data set with --template {}, or give", pair.model_template);
  fail(
      ErrorKind::usage,
      "{} is packed with the chat template {}, but {} has {}. {} --allow-other-template (in a run's configuration: data.allow_template_change = true)",
      pair.set, pair.set_template, pair.model, shown(pair.model_template), repack);
}

}  // namespace trireme::checkpoint
