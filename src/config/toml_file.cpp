#include "config/toml_file.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/error.hpp"

namespace trireme::config {
namespace {

std::string describe(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

/// Returns the strings of an array; none if it has an element of another type.
std::optional<std::vector<std::string>> texts_of(const toml::array& array) {
  std::vector<std::string> texts;
  for (const toml::node& node : array) {
    const auto* text = node.as_string();
    if (text == nullptr) return std::nullopt;
    texts.push_back(text->get());
  }
  return texts;
}

TomlEntry make_entry(std::string path, const toml::key& key, const toml::node& node) {
  TomlEntry entry;
  entry.key = std::move(path);
  entry.what = describe(node);
  entry.line = key.source().begin.line;
  entry.column = key.source().begin.column;
  const auto* array = node.as_array();
  const auto texts = array != nullptr ? texts_of(*array) : std::nullopt;
  if (texts) {
    entry.value = *texts;
  } else if (const auto* text = node.as_string()) {
    entry.value = text->get();
  } else if (const auto* integer = node.as_integer()) {
    entry.value = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    entry.value = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    entry.value = boolean->get();
  } else {
    entry.value = TomlEntry::Other{node.is_table()};
  }
  return entry;
}

void append(const toml::table& table, const std::string& prefix, std::vector<TomlEntry>& entries) {
  for (const auto& [key, node] : table) {
    const std::string path =
        prefix.empty() ? std::string(key.str()) : formatted("{}.{}", prefix, key.str());
    entries.push_back(make_entry(path, key, node));
    if (const auto* inner = node.as_table()) append(*inner, path, entries);
  }
}

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& where) {
  std::vector<TomlEntry> entries;
  try {
    append(toml::parse(text, std::string_view(where)), "", entries);
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    fail(ErrorKind::usage, "{}:{}:{}: not valid TOML: {}", where, begin.line, begin.column,
         error.description());
  }
  // toml++ sorts by name, but messages follow the lines of the file. The stable sort keeps an
  // implicit table before its members.
  std::stable_sort(entries.begin(), entries.end(), [](const TomlEntry& a, const TomlEntry& b) {
    return std::tuple(a.line, a.column) < std::tuple(b.line, b.column);
  });
  return entries;
}

}  // namespace trireme::config
