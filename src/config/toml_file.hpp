#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Parses TOML text into a flat list. Only toml_file.cpp uses toml++.
namespace trireme::config {

/// One table or value.
struct TomlEntry {
  /// A table, or a value of a type that no key accepts (named by `what`).
  struct Other {
    bool is_table = false;
  };

  std::string key;  // full dotted path
  std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>, Other> value;
  std::string what;        // "a table", "an array", "a text", "an integer", ...
  std::uint32_t line = 0;  // position of the key, from 1
  std::uint32_t column = 0;
};

/// Returns the entries in the order of the text; a table comes before its members. `where` names
/// the text in errors. Throws Error(usage) "run.toml:3:7: ..." for invalid TOML, also for a
/// duplicate key.
std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& where);

}  // namespace trireme::config
