#include "data_prep/documents/document_config.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/join.hpp"
#include "core/number.hpp"
#include "data/shards/set_content.hpp"
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

/// Returns the names of the kinds for which `is_wanted` is true.
template <class Wanted>
std::string kinds_with(const Wanted& is_wanted, std::string_view separator = ", ") {
  std::vector<std::string_view> names;
  for (const text::RecordKind& kind : text::record_kinds())
    if (is_wanted(kind)) names.push_back(kind.name);
  return joined(names, separator);
}

bool has_pairs(const text::RecordKind& kind) {
  return data::set_content(kind.name, kind.stored_as).has_pairs();
}

/// Returns the names of the kinds with two sides.
std::string pair_kind_names(std::string_view separator) {
  return kinds_with(has_pairs, separator);
}

void check_template(const ChatConfig& chat, Problems& problems) {
  if (!has_jinja_template(chat)) {
    text::chat_template(chat.format);  // throws Error(usage) with a list of all templates
    return;
  }
  if (!chat.template_file.empty() && !chat.format.empty())
    problems.add(formatted("--template {} and --template-file {} exclude each other", chat.format,
                           chat.template_file));
  const ChatConfig usual;
  if (chat.augment != usual.augment || chat.drop_empty_think > 0)
    problems.add(
        "--augment and --drop-empty-think require a named chat template (--template NAME)");
}

std::string option_text(const std::string& value) {
  return value.empty() ? "''" : value;
}

std::string option_text(bool value) {
  return value ? "true" : "false";
}

std::string option_text(double value) {
  return number_text(value);
}

std::string option_text(std::int64_t value) {
  return cat(value);
}

/// Adds a problem for each option of `section` that is not the default and that only other kinds
/// read. `checked`: options that other checks refuse.
template <class Section>
void refuse_unread(const Section& section, const std::set<std::string_view>& checked,
                   const std::string& kinds, Problems& problems) {
  const Section usual;
  std::map<std::string, std::string> defaults;
  Section::fields(usual,
                  [&](const char* name, const auto& value, const char* /*help*/,
                      const FieldTraits& /*traits*/ = {}) { defaults[name] = option_text(value); });
  Section::fields(section, [&](const char* name, const auto& value, const char* /*help*/,
                               const FieldTraits& /*traits*/ = {}) {
    const std::string text = option_text(value);
    if (text == defaults.at(name) || checked.contains(name)) return;
    std::string option = name;
    std::ranges::replace(option, '_', '-');
    problems.add(formatted("--{} {} requires --kind {}", option, text, kinds));
  });
}

/// Returns the kinds that read texts: "pretrain".
std::string text_kind_names() {
  std::vector<std::string_view> names;
  for (const text::RecordKind& kind : text::record_kinds())
    if (!kind.form) names.push_back(kind.name);
  return joined(names, " and ");
}

void check_probability(const char* option, double value, Problems& problems) {
  if (value != ChatConfig{}.add_system && !(value >= 0 && value <= 1))
    problems.add(option, value, "must be in [0, 1]");
}

/// Adds the options of system prompts for documents with two sides, which get none.
void check_system_prompts(const DocumentConfig& config, Problems& problems) {
  if (!contents_of(config).has_pairs()) return;
  const auto refuse = [&](std::string_view option, const std::string& value) {
    problems.add(
        formatted("{} {} does not apply to --kind {}: pack adds no system prompt to its "
                  "records. Write a system message into each record",
                  option, value, config.kind));
  };
  if (config.chat.add_system > 0) refuse("--add-system", number_text(config.chat.add_system));
  if (!config.chat.system_prompts.empty()) refuse("--system-prompts", config.chat.system_prompts);
}

/// Checks --thinking-ratio, which only prompts of named templates with thoughts have.
void check_thinking(const DocumentConfig& config, Problems& problems) {
  const ChatConfig& chat = config.chat;
  if (chat.thinking_ratio == ChatConfig{}.thinking_ratio) return;
  if (chat_form(config) != text::ChatForm::prompt)
    return problems.add(formatted("--thinking-ratio {} requires --kind rl", chat.thinking_ratio));
  check_probability("--thinking-ratio", chat.thinking_ratio, problems);
  if (has_jinja_template(chat))
    return problems.add("--thinking-ratio requires a named chat template (--template NAME)");
  if (text::chat_template(chat.format).thinking == text::ThinkingSwitch::none)
    problems.add(formatted("--thinking-ratio {}: --template {} has no thoughts in its prompts",
                           chat.thinking_ratio, chat.format));
}

/// Adds the options that prompts do not have.
void check_prompts(const DocumentConfig& config, Problems& problems) {
  if (chat_form(config) != text::ChatForm::prompt) return;
  const ChatConfig& chat = config.chat;
  const ChatConfig usual;
  const auto refuse = [&](std::string_view option) {
    problems.add(formatted("{} does not apply to --kind rl: prompts have no answers", option));
  };
  if (chat.mask != usual.mask) refuse("--mask");
  if (chat.train_on != usual.train_on) refuse("--train-on");
  if (chat.drop_empty_think != usual.drop_empty_think) refuse("--drop-empty-think");
}

}  // namespace

std::string chat_template_placeholder() {
  std::string names = text::chat_template_names();
  for (std::size_t at = names.find(", "); at != std::string::npos; at = names.find(", "))
    names.replace(at, 2, 1, '|');
  return cat(names, "|", text::kTokenizerTemplate);
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

std::string answer_help(std::string_view text) {
  return cat(kinds_with([](const text::RecordKind& kind) {
               return kind.form && kind.form != text::ChatForm::prompt;
             }),
             ": ", text);
}

std::string system_help(std::string_view text) {
  return cat(kinds_with([](const text::RecordKind& kind) { return kind.form && !has_pairs(kind); }),
             ": ", text);
}

std::string pair_help(std::string_view text) {
  return cat(pair_kind_names(", "), ": ", text);
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

const data::SetContent& contents_of(const DocumentConfig& config) {
  const text::RecordKind* kind = text::find_record_kind(config.kind);
  return data::set_content(config.kind, kind == nullptr ? "" : kind->stored_as);
}

void check(const DocumentConfig& config, Problems& problems) {
  check_fields(config, problems);
  check_format(config, problems);
  if (!contents_of(config).has_pairs() && config.chat.cut_pairs != ChatConfig{}.cut_pairs)
    problems.add(formatted("--cut-pairs {} requires --kind {}", config.chat.cut_pairs,
                           pair_kind_names(" or ")));
  check_system_prompts(config, problems);
  check_ignored(config, problems);
  if (text::find_record_kind(config.kind) == nullptr) return;
  if (!chat_form(config)) {
    if (!config.chat.format.empty())
      problems.add(formatted("--template {} requires --kind {}", config.chat.format,
                             text::chat_kind_names(" and ")));
    refuse_unread(config.chat, {"format", "fields", "template", "cut_pairs", "thinking_ratio"},
                  text::chat_kind_names(" and "), problems);
  } else {
    refuse_unread(config.text, {}, text_kind_names(), problems);
    check_probability("--add-system", config.chat.add_system, problems);
    check_probability("--drop-empty-think", config.chat.drop_empty_think, problems);
    check_template(config.chat, problems);
  }
  check_thinking(config, problems);
  check_prompts(config, problems);
}

}  // namespace trireme::data_prep
