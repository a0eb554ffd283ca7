#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "config/config_set.hpp"
#include "config/program_variables.hpp"
#include "config/toml_file.hpp"
#include "core/edit_distance.hpp"
#include "core/files/file.hpp"
#include "core/number.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): no POSIX header declares it

/// ConfigSet: loads files and the environment.
namespace trireme::config {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;

/// Returns "; did you mean 'NAME'?" for a file beside the missing `path` with a similar name.
std::string near_file(const std::filesystem::path& path) {
  std::vector<std::string> names;
  std::error_code code;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (auto it = std::filesystem::directory_iterator(folder, code);
       !code && it != std::filesystem::directory_iterator(); it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return did_you_mean(path.filename().string(), names);
}

std::string plain(const TomlEntry& entry) {
  if (const auto* text = std::get_if<std::string>(&entry.value)) return *text;
  if (const auto* boolean = std::get_if<bool>(&entry.value)) return *boolean ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&entry.value)) return number_text(*number);
  return entry.what;
}

bool is_table(const TomlEntry& entry) {
  const auto* other = std::get_if<TomlEntry::Other>(&entry.value);
  return other != nullptr && other->is_table;
}

/// Returns the value as text for assign_text; none if the field cannot hold a TOML value of this
/// type.
std::optional<std::string> toml_text(const TomlEntry& entry, const FieldPointer& field) {
  const bool wants_number = std::holds_alternative<double*>(field);
  const bool wants_texts = std::holds_alternative<std::vector<std::string>*>(field);
  bool fits = false;
  if (std::holds_alternative<std::string>(entry.value))
    fits = wants_texts || std::holds_alternative<std::string*>(field);
  if (std::holds_alternative<bool>(entry.value)) fits = std::holds_alternative<bool*>(field);
  if (std::holds_alternative<std::int64_t>(entry.value)) {
    fits = wants_number || std::holds_alternative<std::int64_t*>(field);
  }
  if (std::holds_alternative<double>(entry.value)) fits = wants_number;
  if (!fits) return std::nullopt;
  return plain(entry);
}

std::string_view expected(const FieldPointer& field) {
  constexpr std::array<std::string_view, 5> kExpected{
      "must be true or false", "must be an integer", "must be a number", "must be a text in quotes",
      "must be a text in quotes or a list of them, for example [\"a\", \"b\"]"};
  return kExpected.at(field.index());
}

/// Returns the value for a message: a quoted string, or "an array" if it has no short form.
std::string shown(const TomlEntry& entry) {
  return std::holds_alternative<std::string>(entry.value) ? formatted("\"{}\"", plain(entry))
                                                          : plain(entry);
}

bool is_not_config(std::string_view name) {
  return std::find(kProgramVariables.begin(), kProgramVariables.end(), name) !=
         kProgramVariables.end();
}

}  // namespace

std::vector<EarlierValue> earlier_values(std::string_view text, const std::string& where) {
  std::vector<EarlierValue> values;
  for (const TomlEntry& entry : parse_toml(text, where)) {
    if (!is_table(entry))
      values.push_back({entry.key, plain(entry), formatted("{}:{}", where, entry.line)});
  }
  return values;
}

void ConfigSet::load_file(const std::filesystem::path& path) {
  try {
    load_toml(read_text(path, kMaxFileBytes), path.string());
  } catch (const Error& error) {
    std::error_code code;
    problems_.add(cat(error.what(), std::filesystem::exists(path, code) ? "" : near_file(path)));
  }
}

void ConfigSet::load_toml(std::string_view text, const std::string& where) {
  std::vector<TomlEntry> values;
  try {
    values = parse_toml(text, where);
  } catch (const Error& error) {
    problems_.add(error.what());
    return;
  }
  std::vector<std::string> skip;  // "key." of tables that were reported already
  std::vector<std::string> seen;
  for (const TomlEntry& value : values) {
    const bool inside = std::any_of(skip.begin(), skip.end(), [&](const std::string& table) {
      return value.key.starts_with(table);
    });
    if (inside) continue;
    const bool twice = std::find(seen.begin(), seen.end(), value.key) != seen.end();
    if (twice) {  // toml++ does not detect `"a.b" = 1` beside `a.b = 1`
      problems_.add(formatted("{}:{}:{}: key '{}' is given twice", where, value.line, value.column,
                              value.key));
      continue;
    }
    seen.push_back(value.key);
    const bool goes_on = load_entry(value, where);
    if (!goes_on) skip.push_back(value.key + '.');
  }
}

bool ConfigSet::load_entry(const TomlEntry& value, const std::string& where) {
  const std::string place = formatted("{}:{}:{}", where, value.line, value.column);
  Entry* entry = find(value.key);
  if (entry == nullptr && is_table(value)) {
    const std::vector<std::string> known = sections();
    const bool leads_on = std::any_of(known.begin(), known.end(), [&](const std::string& section) {
      return section == value.key || section.starts_with(value.key + '.');
    });
    if (leads_on) return true;
    problems_.add(
        formatted("{}: unknown section '{}'{}", place, value.key, did_you_mean(value.key, known)));
    return false;
  }
  if (entry == nullptr) {
    problems_.add(formatted("{}: unknown key '{}'{}", place, value.key, suggestion(value.key)));
    return true;
  }
  const std::string origin = formatted("{}:{}", where, value.line);
  const auto* texts = std::get_if<std::vector<std::string>>(&value.value);
  auto* const* list = std::get_if<std::vector<std::string>*>(&entry->field.value);
  if (texts != nullptr && list != nullptr) {
    if (entry->source > Source::file) return true;
    **list = *texts;
    entry->source = Source::file;
    entry->origin = origin;
    return true;
  }
  const auto text = toml_text(value, entry->field.value);
  if (!text) {
    problems_.add(formatted("{} = {}, {} ({})", value.key, shown(value),
                            expected(entry->field.value), place));
    return !is_table(value);
  }
  assign(*entry, *text, Source::file, origin);
  return true;
}

void ConfigSet::load_environment() {
  std::vector<std::string> names;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (!text.starts_with("TRIREME_") || equals == std::string_view::npos ||
        equals + 1 == text.size())
      continue;
    const std::string name(text.substr(0, equals));
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.environment_name == name;
    });
    if (found != entries_.end()) {
      assign(*found, text.substr(equals + 1), Source::environment, name);
    } else if (!is_not_config(name)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) check_unknown_variable(name);
}

void ConfigSet::check_unknown_variable(const std::string& name) {
  std::vector<std::string> known(kProgramVariables.begin(), kProgramVariables.end());
  for (const Entry& entry : entries_) known.push_back(entry.environment_name);
  const std::string near = did_you_mean(name, known);
  for (const std::string& section : sections()) {
    if (name.starts_with(environment_name(section) + '_')) {
      problems_.add(formatted("environment variable {} matches no key of section '{}'{}", name,
                              section, near));
      return;
    }
  }
  const std::string text =
      formatted("environment variable {} matches no configuration key{}", name, near);
  if (near.empty()) {
    warnings_.push_back(text);
  } else {
    problems_.add(text);
  }
}

}  // namespace trireme::config
