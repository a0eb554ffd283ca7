#include <algorithm>
#include <string>

#include "config/config_set.hpp"
#include "config/value.hpp"

/// ConfigSet: what is written and shown.
namespace trireme {
namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string visible(const std::string& value) {
  return value.empty() ? "''" : value;
}

}  // namespace

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

}  // namespace trireme
