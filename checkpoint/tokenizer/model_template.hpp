#pragma once
#include <map>
#include <string>
#include <string_view>

/// The chat template of a model, and the check that a data set has the same one.
namespace trireme {

/// Returns the Jinja text of a tokenizer's chat template: chat_template.jinja, else `chat_template`
/// of tokenizer_config.json (a text, or the entry "default" of a list); "" if there is none.
/// Throws Error(data) for a tokenizer_config.json that is not JSON.
std::string jinja_of(const std::map<std::string, std::string>& files);

/// Returns the name of the template that renders as the Jinja text of `files` does
/// (nearest_chat_template), "custom-" and the first 12 hex digits of the text's XXH3-128 if there is
/// no such template. Returns "" if the files have no chat template, or that of a new tokenizer
/// (`trireme-data tokenizer train`), with which no model was trained.
std::string template_of_files(const std::map<std::string, std::string>& files);

/// Returns true for a template name that stands for a Jinja text of unknown form.
bool is_custom_template(std::string_view name);

/// Returns the chat template of the checkpoint with these values: the one that it was trained with,
/// else the one that it was imported with, else "" (not known: pretrained on texts, or written by an
/// older version).
std::string template_of(const std::map<std::string, std::string>& values);

/// Returns a line for the log that says which chat template an imported model has; `where` names the
/// model.
std::string template_note(const std::string& name, std::string_view where);

/// A data set and a model that reads it, for messages and the comparison.
struct TemplatePair {
  std::string set;             // "--data sets/chats"
  std::string set_template;    // "": texts, which have none
  std::string model;           // "runs/sft"
  std::string model_template;  // template_of
};

/// Throws Error(usage) naming both templates if they differ and `allow_other` is false. A set or a
/// model without a known template fits all.
void check_same_template(const TemplatePair& pair, bool allow_other);

/// Help of the flag that every command has which compares the two.
inline constexpr const char* kAllowOtherTemplateHelp =
    "accept a data set whose chat template is not the one that the model was trained with";

}  // namespace trireme
