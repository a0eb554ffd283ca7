#include "config/config_set.hpp"

#include <algorithm>
#include <cctype>

#include "config/value.hpp"
#include "core/edit_distance.hpp"

namespace trireme::config {
namespace {

/// Returns the reason why `text` is not a valid value of the field; "" if it is valid.
std::string wrong_text(const Field& field, std::string_view text) {
  std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>> scratch;
  FieldPointer pointer;
  std::visit([&](auto* target) { pointer = &scratch.emplace<std::decay_t<decltype(*target)>>(); },
             field.value);
  return assign_text(pointer, text);
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string visible(const std::string& value) {
  return value.empty() ? "''" : value;
}

}  // namespace

std::string environment_name(std::string_view key) {
  std::string name = "TRIREME_";
  for (const char c : key)
    name += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string option_name(std::string_view key) {
  std::string name = "--";
  for (const char c : name_of(key)) name += c == '_' ? '-' : c;
  return name;
}

std::string_view section_of(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? "" : key.substr(0, dot);
}

std::string_view name_of(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

ConfigSet::ConfigSet(std::vector<Field> fields)
    : problems_([this](const std::string& key) {
        const Entry* entry = key.starts_with("--") ? find_option(key) : find(key);
        return entry == nullptr || entry->origin == key ? "" : entry->origin;
      }) {
  entries_.reserve(fields.size());
  for (Field& field : fields) {
    TRIREME_ASSERT(!section_of(field.key).empty());
    std::string variable = environment_name(field.key);
    for (const Entry& entry : entries_) {
      if (entry.environment_name == variable)
        fail(ErrorKind::internal, "config keys {} and {} clash", entry.field.key, field.key);
    }
    Entry entry;
    entry.default_text = value_text(field.value);
    entry.environment_name = std::move(variable);
    entry.field = std::move(field);
    entries_.push_back(std::move(entry));
  }
}

const ConfigSet::Entry* ConfigSet::find(std::string_view key) const noexcept {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.field.key == key; });
  return found == entries_.end() ? nullptr : &*found;
}

ConfigSet::Entry* ConfigSet::find(std::string_view key) noexcept {
  return const_cast<Entry*>(static_cast<const ConfigSet*>(this)->find(key));
}

const ConfigSet::Entry* ConfigSet::find_option(std::string_view option) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return option_name(entry.field.key) == option;
  });
  return found == entries_.end() ? nullptr : &*found;
}

const ConfigSet::Entry& ConfigSet::at(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) fail(ErrorKind::internal, "no config key {}", key);
  return *entry;
}

void ConfigSet::assign(Entry& entry, std::string_view text, Source source,
                       const std::string& origin) {
  // A value of a source with lower precedence is checked, too, but must not win because it comes
  // later.
  const bool wins = source >= entry.source;
  const std::string wrong =
      wins ? assign_text(entry.field.value, text) : wrong_text(entry.field, text);
  if (!wrong.empty()) {
    problems_.add(
        formatted("{} = {}, {} ({})", entry.field.key, text.empty() ? "''" : text, wrong, origin));
  } else if (wins) {
    entry.source = source;
    entry.origin = origin;
  }
}

void ConfigSet::set(std::string_view key, std::string_view text, const std::string& origin) {
  if (Entry* entry = find(key)) {
    assign(*entry, text, Source::command_line, origin);
  } else {
    problems_.add(formatted("{}: unknown key '{}'{}", origin, key, suggestion(key)));
  }
}

void ConfigSet::mark_given(std::string_view key, const std::string& origin) {
  Entry* entry = find(key);
  TRIREME_ASSERT(entry != nullptr);
  entry->source = Source::command_line;
  entry->origin = origin;
}

void ConfigSet::apply_preset(const std::vector<Field>& values, const std::string& origin,
                             bool replaces_earlier) {
  const Source source = replaces_earlier ? Source::new_preset : Source::preset;
  for (const Field& field : values) {
    Entry* entry = find(field.key);
    if (entry == nullptr)
      fail(ErrorKind::internal, "{} has a value for {}, which is no config key", origin, field.key);
    if (entry->source > source) continue;
    assign_field(entry->field.value, field.value);
    entry->source = source;
    entry->origin = origin;
  }
}

std::string ConfigSet::apply_earlier(const std::vector<EarlierValue>& values) {
  for (const EarlierValue& value : values) {
    const Entry* entry = find(value.key);
    const std::string wrong = entry == nullptr ? "" : wrong_text(entry->field, value.text);
    if (!wrong.empty())
      return formatted("{} = {}, {} ({})", value.key, value.text, wrong, value.origin);
  }
  for (const EarlierValue& value : values) {
    Entry* entry = find(value.key);
    if (entry == nullptr) {
      warnings_.push_back(formatted("{}: unknown key '{}' is ignored", value.origin, value.key));
    } else if (entry->source < Source::earlier) {
      assign(*entry, value.text, Source::earlier, value.origin);
    }
  }
  return "";
}

void ConfigSet::leave_out(std::string_view key, bool left_out) {
  Entry* entry = find(key);
  if (entry == nullptr) fail(ErrorKind::internal, "no config key {}", key);
  entry->left_out = left_out;
}

const std::string& ConfigSet::origin(std::string_view key) const {
  return at(key).origin;
}

bool ConfigSet::is_set(std::string_view key) const {
  return at(key).source >= Source::file;
}

std::string ConfigSet::value(std::string_view key) const {
  return value_text(at(key).field.value);
}

std::string ConfigSet::placeholder(std::string_view key) const {
  return std::string(value_placeholder(at(key).field.value));
}

std::vector<std::string> ConfigSet::sections() const {
  std::vector<std::string> result;
  for (const Entry& entry : entries_) {
    const std::string section(section_of(entry.field.key));
    if (std::find(result.begin(), result.end(), section) == result.end()) result.push_back(section);
  }
  return result;
}

std::vector<std::string> ConfigSet::keys() const {
  std::vector<std::string> result;
  for (const Entry& entry : entries_) {
    if (!entry.left_out) result.push_back(entry.field.key);
  }
  return result;
}

std::vector<std::string> ConfigSet::names(std::string_view section) const {
  std::vector<std::string> result;
  for (const Entry& entry : entries_) {
    if (section_of(entry.field.key) == section) result.emplace_back(name_of(entry.field.key));
  }
  return result;
}

std::string ConfigSet::suggestion(std::string_view key) const {
  const std::vector<std::string> all = keys();
  for (const std::string& known : all) {  // the user left out the section or gave a wrong one
    if (name_of(known) == name_of(key)) return formatted("; did you mean '{}'?", known);
  }
  return did_you_mean(key, all);
}

std::string ConfigSet::to_toml() const {
  std::string text;
  for (const std::string& section : sections()) {
    text += formatted("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const Entry& entry : entries_) {
      if (entry.left_out || section_of(entry.field.key) != section) continue;
      text += formatted("{} = {}\n", name_of(entry.field.key), value_toml(entry.field.value));
    }
  }
  return text;
}

std::string ConfigSet::show(bool with_origin) const {
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  for (const Entry& entry : entries_) {
    if (entry.left_out) continue;
    key_width = std::max(key_width, entry.field.key.size());
    value_width = std::max(value_width, visible(value_text(entry.field.value)).size());
  }
  value_width = std::min(value_width,
                         std::size_t{40});  // a long path must not push every origin off the screen
  std::string text;
  for (const Entry& entry : entries_) {
    if (entry.left_out) continue;
    const std::string value = visible(value_text(entry.field.value));
    text += formatted("{}  ", padded(entry.field.key, key_width));
    text += with_origin ? formatted("{}  {}\n", padded(value, value_width), entry.origin)
                        : value + "\n";
  }
  return text;
}

std::string ConfigSet::help_text(std::string_view section) const {
  std::string text;
  for (const Entry& entry : entries_) {
    if (section_of(entry.field.key) != section) continue;
    text += formatted("  --{} {}\n", entry.field.key, value_placeholder(entry.field.value));
    text += formatted("      {}\n", entry.field.help);
    if (const std::vector<std::string>* allowed = problems_.allowed(entry.field.key)) {
      text += "      one of";
      for (const std::string& value : *allowed) text += formatted(" {}", value);
      text += "\n";
    }
    text += formatted("      default {}, environment {}\n", visible(entry.default_text),
                      entry.environment_name);
  }
  return text;
}

}  // namespace trireme::config
