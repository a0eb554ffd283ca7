#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Repaired {
  std::string text;
  std::uint64_t replaced = 0;  // U+FFFD put in
};

/// A JSON text in which each unpaired surrogate escape (`\ud800`) and each invalid UTF-8 sequence
/// (maximal subpart, as Python's errors="replace") has become U+FFFD; everything else is unchanged.
/// Another `replacement` can be asked for.
Repaired repair_json_text(std::string_view json, std::string_view replacement = kReplacement);

}  // namespace trireme
