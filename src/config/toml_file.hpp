#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// TOML text as a flat list; toml_file.cpp is the one place that sees toml++.
namespace trireme {

/// One table or value. `key` is the full dotted path.
struct TomlEntry {
  /// A table, or a value of a type that no key takes (`what` says which).
  struct Other {
    bool is_table = false;
  };

  std::string key;
  std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>, Other> value;
  std::string what;        // "a table", "an array", "a text", "an integer", ...
  std::uint32_t line = 0;  // of the key, from 1
  std::uint32_t column = 0;
};

/// In the order of the text; a table comes before its members. `where` names the text in errors.
/// Throws Error(usage) "run.toml:3:7: ..." for what is not TOML, a key given twice among it.
std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& where);

}  // namespace trireme
