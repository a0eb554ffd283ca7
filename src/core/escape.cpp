#include "core/escape.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/join.hpp"

namespace trireme {
namespace {

/// Returns the bytes of the control character at `at`: 1, 2 (U+0080 to U+009F) or 0 for none.
std::size_t control_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x20 || byte == 0x7F) return byte == '\n' || byte == '\t' ? 0 : 1;
  if (byte != 0xC2 || at + 1 == text.size()) return 0;
  const auto next = static_cast<unsigned char>(text[at + 1]);
  return next >= 0x80 && next < 0xA0 ? 2 : 0;
}

std::string escape(std::string_view text, std::string_view prefix) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = control_at(text, at);
    if (length == 0) {
      result += text[at++];
      continue;
    }
    at += length;
    const auto code = static_cast<unsigned char>(text[at - 1]);  // the last byte in both encodings
    result.append(prefix).append({kDigits[code >> 4], kDigits[code & 15]});
  }
  return result;
}

}  // namespace

std::string escape_controls(std::string_view text) {
  return escape(text, "\\x");
}

std::string escape_json_controls(std::string_view json) {
  return escape(json, "\\u00");
}

std::string shell_word(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::strchr("-_=./:,%+@", c) != nullptr;
  });
  if (is_plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  return joined(words, " ", shell_word);
}

}  // namespace trireme
