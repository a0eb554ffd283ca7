#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// Finds the chat template of a model and checks that a data set uses the same one.
namespace trireme::checkpoint {

/// Returns the Jinja text of a tokenizer's chat template: chat_template.jinja, else `chat_template`
/// of tokenizer_config.json (a text, or the entry "default" of a list); "" if there is none.
/// Throws Error(data) for a tokenizer_config.json that is not JSON.
std::string jinja_of(const std::map<std::string, std::string>& files);

/// Returns the name of the format for the Jinja text of `files` (text::own_chat_format): a named
/// format, or "custom-" and the first 12 hex digits of the XXH3-128 of the text. Returns "" if the
/// files have no chat template, or the template of a new tokenizer (`trireme-data tokenizer train`),
/// with which no model was trained.
std::string template_of_files(const std::map<std::string, std::string>& files);

/// Returns text::refusal_note of the Jinja text of `files`; `where` names the model.
std::string refusal_of_files(const std::map<std::string, std::string>& files,
                             std::string_view where);

/// Returns true for a template name that stands for an unknown Jinja text.
bool is_custom_template(std::string_view name);

/// Returns the chat template of the checkpoint with these values: the template that it was trained
/// with, else the template that it was imported with, else "" (unknown: pretrained on texts, or
/// written by an older version).
std::string template_of(const std::map<std::string, std::string>& values);

/// Returns the name "custom-HASH" of the Jinja text of an imported model, also if it is recognized
/// as a named template; "" if it is unknown, or if the model was trained with another template
/// since. A set packed with `--template tokenizer` has this name.
std::string jinja_name_of(const std::map<std::string, std::string>& values);

/// Sets the values of a model that was imported with these files, or that gets their template.
/// Returns template_of_files(files); if it is "", the values stay.
std::string put_imported_template(const std::map<std::string, std::string>& files,
                                  std::map<std::string, std::string>& values);

/// Returns a log line about the chat template of an imported model; `where` names the model.
std::string template_note(const std::string& name, std::string_view where);

/// Returns the token that ends a turn of the template with which the checkpoint with these values
/// and files was trained. Returns nullopt if it was trained on texts, if the end is no token, or if
/// the tokenizer or the template cannot be read.
std::optional<std::uint32_t> trained_turn_end(const std::map<std::string, std::string>& values,
                                              const std::map<std::string, std::string>& files,
                                              std::string_view where);

/// A data set and a model that reads it.
struct TemplateComparison {
  std::string set;               // "--data sets/chats"
  std::string set_template;      // "": a data set of texts
  std::string model;             // "runs/sft"
  std::string model_template;    // template_of
  std::string model_jinja = {};  // jinja_name_of
};

/// Throws Error(usage) naming both templates if they differ and `allow_other` is false. Does
/// nothing if the data set or the model has no known template.
void check_same_template(const TemplateComparison& pair, bool allow_other);

/// Help text of the flag of every command that compares the templates.
inline constexpr const char* kAllowOtherTemplateHelp =
    "accept a data set with another chat template than the model was trained with";

}  // namespace trireme::checkpoint
