#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data_prep {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Repaired {
  std::string text;
  std::uint64_t replaced = 0;  // number of replacements
};

/// Replaces each unpaired surrogate escape (`\ud800`) and each invalid UTF-8 sequence (maximal
/// subpart, like Python's errors="replace") of a JSON text by `replacement` (default U+FFFD). All
/// other bytes are unchanged.
Repaired repair_json_text(std::string_view json, std::string_view replacement = kReplacement);

}  // namespace trireme::data_prep
