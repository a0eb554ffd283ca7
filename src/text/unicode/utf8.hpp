#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::text {

/// The bytes at a position: a whole character, or the longest invalid run (the "maximal subpart" of
/// the Unicode standard, section 3.9, which one U+FFFD replaces).
struct Utf8Step {
  std::size_t length = 0;
  bool valid = false;
  bool truncated = false;  // the text ends inside a character that may still become valid
};

/// `position` must be below text.size().
Utf8Step utf8_step(std::string_view text, std::size_t position) noexcept;

/// Throws Error(data) that names `where` and the offset of the first invalid byte.
void check_utf8(std::string_view text, std::string_view where);

/// Appends `bytes` and replaces every invalid subpart by U+FFFD.
void append_lossy_utf8(std::string_view bytes, std::string& out);

/// Appends a character.
void append_utf8(std::uint32_t code_point, std::string& out);

/// Returns the number of bytes (0 to 3) at the end of `bytes` that begin an incomplete character.
std::size_t utf8_incomplete_tail(std::string_view bytes) noexcept;

/// Returns false for a byte that continues a character.
inline bool begins_character(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

/// Returns the number of characters of `text` (valid UTF-8).
inline std::size_t utf8_length(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

/// Returns the start of the last character of a non-empty text (valid UTF-8).
inline std::size_t utf8_last_start(std::string_view text) noexcept {
  std::size_t start = text.size() - 1;
  while (!begins_character(text[start])) --start;
  return start;
}

/// Returns the code point at `text` (valid UTF-8) and sets its length in bytes.
inline std::uint32_t utf8_decode(const char* text, std::size_t& length) noexcept {
  const auto byte = [text](int i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) {
    length = 1;
    return lead;
  }
  if (lead < 0xE0) {
    length = 2;
    return (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  }
  if (lead < 0xF0) {
    length = 3;
    return (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  length = 4;
  return (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

}  // namespace trireme::text
