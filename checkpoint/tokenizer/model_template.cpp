#include "checkpoint/tokenizer/model_template.hpp"

#include <nlohmann/json.hpp>

#include "checkpoint/format/state.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/chat_writer.hpp"
#include "text/chat/own_format.hpp"
#include "text/learn/tokenizer_writer.hpp"
#include "text/tokenizer.hpp"

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
  if (found == values.end()) return "";
  const std::string trained = template_of(values);
  const auto imported = values.find(kImportedTemplateValue);
  const bool is_kept =
      trained == found->second || (imported != values.end() && trained == imported->second);
  return is_kept ? found->second : "";
}

std::string put_imported_template(const std::map<std::string, std::string>& files,
                                  std::map<std::string, std::string>& values) {
  std::string name = template_of_files(files);
  if (name.empty()) return name;
  values.erase(kChatTemplateValue);
  values[kImportedTemplateValue] = name;
  values[kImportedJinjaValue] = text::custom_template_name(jinja_of(files));
  return name;
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

std::optional<std::uint32_t> trained_turn_end(const std::map<std::string, std::string>& values,
                                              const std::map<std::string, std::string>& files,
                                              std::string_view where) {
  const auto name = values.find(kChatTemplateValue);
  if (name == values.end()) return std::nullopt;
  std::optional<std::uint32_t> end;
  (void)comm::capture([&] {
    text::ChatTemplatePtr format = is_custom_template(name->second)
                                       ? text::jinja_chat_template(jinja_of(files), where)
                                       : text::shared_chat_template(name->second);
    end = text::ChatWriter(std::move(format), text::Tokenizer::from_files(files, where))
              .turn_end_id();
  });
  return end;
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
