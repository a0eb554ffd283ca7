#include "data_prep/documents/utf8_repair.hpp"

#include <algorithm>
#include <optional>

namespace trireme::data_prep {
namespace {

struct Sequence {
  std::size_t length = 1;  // bytes to copy or to replace
  bool valid = true;
};

/// Returns the UTF-8 sequence at the start of `text`, or its maximal invalid part.
/// Source: The Unicode Standard 15, table 3-7 and section 3.9 (substitution of maximal subparts).
Sequence leading_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

/// Returns the value of `\uXXXX` at the start of `text`; nullopt if there is no such escape.
std::optional<unsigned> unicode_escape(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(2, 4)) {
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!digit && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

bool is_high(unsigned code) {
  return code >= 0xD800 && code < 0xDC00;
}

bool is_low(unsigned code) {
  return code >= 0xDC00 && code < 0xE000;
}

/// Returns the escape at the start of `text`, which begins with a backslash.
Sequence leading_escape(std::string_view text) {
  const auto code = unicode_escape(text);
  if (!code) return {std::min<std::size_t>(2, text.size()), true};
  if (is_low(*code)) return {6, false};
  if (!is_high(*code)) return {6, true};
  const auto second = unicode_escape(text.substr(6));
  return second && is_low(*second) ? Sequence{12, true} : Sequence{6, false};
}

}  // namespace

Repaired repair_json_text(std::string_view json, std::string_view replacement) {
  Repaired repaired;
  repaired.text.reserve(json.size());
  while (!json.empty()) {
    // A backslash before a non-ASCII byte is copied alone, so that the byte is checked too.
    const bool escape =
        json[0] == '\\' && (json.size() < 2 || static_cast<unsigned char>(json[1]) < 0x80);
    const Sequence sequence = escape ? leading_escape(json) : leading_sequence(json);
    if (sequence.valid) {
      repaired.text.append(json.substr(0, sequence.length));
    } else {
      repaired.text.append(replacement);
      ++repaired.replaced;
    }
    json.remove_prefix(sequence.length);
  }
  return repaired;
}

}  // namespace trireme::data_prep
