#include "data_prep/documents/document_config.hpp"

#include <set>

#include "core/join.hpp"
#include "data/shards/set_kind.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "text/chat/chat_template.hpp"

namespace trireme::data_prep {
namespace {

void check_fields(const DocumentConfig& config, Problems& problems) {
  const std::string& given = config.chat.record_fields;
  if (given.empty()) return;
  const std::vector<std::string> names = split(given, ',');
  const text::RecordKind* kind = text::find_record_kind(config.kind);
  const auto refuse = [&](std::string_view what) {
    problems.add(formatted("--fields {}{}", given, what));
  };
  if (kind != nullptr && !kind->form)
    return refuse(cat(" requires --kind ", text::chat_kind_names(" and "), "; for ", kind->name,
                      " give the field of the text as --field"));
  if (kind != nullptr && kind->num_names == 0)
    return refuse(cat(" does not apply to --kind ", kind->name, ", which has only the form ",
                      text::default_record_form(*kind->form).name));
  if (kind != nullptr && names.size() != kind->num_names)
    return refuse(cat(": --kind ", kind->name, " takes ", kind->names_refusal));
  const std::set<std::string> different(names.begin(), names.end());
  if (different.contains("") || different.size() != names.size())
    refuse(": names must be unique and not empty");
}

void check_format(const DocumentConfig& config, Problems& problems) {
  const std::string& given = config.chat.record_format;
  const text::RecordForm* form = text::find_record_form(given);
  if (form == nullptr) return;  // auto, or a value that the caller refuses
  if (!config.chat.record_fields.empty())
    problems.add(
        formatted("--format {} and --fields {} exclude each other: --fields names the "
                  "fields of a form of its own",
                  given, config.chat.record_fields));
  if (text::find_record_kind(config.kind) != nullptr && chat_form(config) != form->chats)
    problems.add(formatted("--format {} requires --kind {}", given,
                           text::chat_kind_names(" and ", form->chats)));
}

void check_ignored(const DocumentConfig& config, Problems& problems) {
  if (config.ignore_fields.empty()) return;
  for (const std::string& name : split(config.ignore_fields, ',')) {
    if (!name.empty()) continue;
    problems.add("--ignore-fields", config.ignore_fields,
                 "must be names separated by single commas: id,source");
    return;
  }
}

void check_probability(const char* option, double value, Problems& problems) {
  if (value != ChatConfig{}.add_system && !(value >= 0 && value <= 1))
    problems.add(option, value, "must be in [0, 1]");
}

/// Adds the options that prompts do not have, and those that only prompts have.
void check_prompts(const DocumentConfig& config, Problems& problems) {
  const ChatConfig& chat = config.chat;
  const ChatConfig usual;
  if (chat_form(config) != text::ChatForm::prompt) {
    if (chat.thinking_ratio != usual.thinking_ratio)
      problems.add(formatted("--thinking-ratio {} requires --kind rl", chat.thinking_ratio));
    return;
  }
  const auto refuse = [&](std::string_view option) {
    problems.add(formatted("{} does not apply to --kind rl: prompts have no answers", option));
  };
  if (chat.mask != usual.mask) refuse("--mask");
  if (chat.train_on != usual.train_on) refuse("--train-on");
  if (chat.drop_empty_think != usual.drop_empty_think) refuse("--drop-empty-think");
  check_probability("--thinking-ratio", chat.thinking_ratio, problems);
  if (chat.thinking_ratio >= 0 &&
      text::chat_template(chat.format).thinking == text::ThinkingSwitch::none)
    problems.add(formatted("--thinking-ratio {}: --template {} has no thoughts in its prompts",
                           chat.thinking_ratio, chat.format));
}

}  // namespace

std::string chat_template_placeholder() {
  std::string names = text::chat_template_names();
  for (std::size_t at = names.find(", "); at != std::string::npos; at = names.find(", "))
    names.replace(at, 2, 1, '|');
  return names;
}

std::string kind_help() {
  const auto text_of = [](const text::RecordKind& kind) {
    return cat(kind.name, " (", kind.keys, ")");
  };
  const std::span<const text::RecordKind> kinds = text::record_kinds();
  return cat("kind of the lines: ", joined(kinds.first(kinds.size() - 1), ", ", text_of), " or ",
             text_of(kinds.back()));
}

std::vector<std::string> record_format_values() {
  std::vector<std::string> values{std::string(kAutoFormat)};
  for (const text::RecordForm& form : text::record_forms()) values.emplace_back(form.name);
  return values;
}

std::string record_format_help() {
  const auto text_of = [](const text::RecordForm& form) { return cat(form.name, " ", form.keys); };
  return chat_help(cat("record form; auto: the form of the first records of each input. ",
                       joined(text::record_forms(), ", ", text_of)));
}

std::string record_fields_help() {
  std::vector<std::string> parts;
  for (const text::RecordKind& kind : text::record_kinds())
    if (kind.num_names != 0) parts.push_back(cat(kind.name, ": ", kind.names, kind.names_help));
  return joined(parts, "; ");
}

std::string chat_help(std::string_view text, std::optional<text::ChatForm> form) {
  return cat(text::chat_kind_names(", ", form), ": ", text);
}

std::vector<std::string> record_kind_names() {
  std::vector<std::string> names;
  for (const text::RecordKind& kind : text::record_kinds()) names.emplace_back(kind.name);
  return names;
}

std::optional<text::ChatForm> chat_form(const DocumentConfig& config) {
  const text::RecordKind* kind = text::find_record_kind(config.kind);
  return kind == nullptr ? std::nullopt : kind->form;
}

void check(const DocumentConfig& config, Problems& problems) {
  check_fields(config, problems);
  check_format(config, problems);
  if (!data::set_kind(config.kind).has_pairs() && config.chat.cut_pairs != ChatConfig{}.cut_pairs)
    problems.add(formatted("--cut-pairs {} requires --kind {}", config.chat.cut_pairs,
                           text::chat_kind_names(" and ", text::ChatForm::pair)));
  check_ignored(config, problems);
  if (text::find_record_kind(config.kind) == nullptr) return;
  if (!chat_form(config)) {
    if (!config.chat.format.empty())
      problems.add(formatted("--template {} requires --kind {}", config.chat.format,
                             text::chat_kind_names(" and ")));
  } else {
    check_probability("--add-system", config.chat.add_system, problems);
    check_probability("--drop-empty-think", config.chat.drop_empty_think, problems);
    text::chat_template(config.chat.format);  // throws Error(usage) with a list of all templates
  }
  check_prompts(config, problems);
}

}  // namespace trireme::data_prep
