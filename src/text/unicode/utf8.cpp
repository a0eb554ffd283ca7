#include "text/unicode/utf8.hpp"

#include <simdjson.h>

#include <algorithm>

#include "core/error.hpp"

namespace trireme::text {
namespace {

/// Returns the length of the character that starts with `lead` (0x80 or more); 0 if `lead` is
/// invalid.
std::size_t sequence_length(unsigned lead) noexcept {
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return 2;
  return lead < 0xF0 ? 3 : 4;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t position) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(position);
  if (lead < 0x80) return {.length = 1, .valid = true};
  const std::size_t need = sequence_length(lead);
  if (need == 0) return {.length = 1};
  // These ranges of the second byte exclude overlong forms, surrogates and code points above
  // U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < need; ++i) {
    if (position + i >= text.size()) return {.length = i, .truncated = true};
    if (byte(position + i) < low || byte(position + i) > high) return {.length = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.length = need, .valid = true};
}

void check_utf8(std::string_view text, std::string_view where) {
  if (simdjson::validate_utf8(text.data(), text.size())) return;
  std::size_t position = 0;
  while (position < text.size()) {
    const Utf8Step step = utf8_step(text, position);
    if (!step.valid) break;
    position += step.length;
  }
  fail(ErrorKind::data, "{}: not valid UTF-8 at byte {}", where, position);
}

void append_lossy_utf8(std::string_view bytes, std::string& out) {
  std::size_t good = 0;  // start of the valid bytes that are not copied yet
  for (std::size_t position = 0; position < bytes.size();) {
    const Utf8Step step = utf8_step(bytes, position);
    if (!step.valid) {
      out.append(bytes.substr(good, position - good));
      out.append("\xEF\xBF\xBD");
      good = position + step.length;
    }
    position += step.length;
  }
  out.append(bytes.substr(good));
}

std::size_t utf8_incomplete_tail(std::string_view bytes) noexcept {
  for (std::size_t tail = 1; tail <= std::min<std::size_t>(3, bytes.size()); ++tail) {
    const std::size_t position = bytes.size() - tail;
    if (!begins_character(bytes[position])) continue;
    const Utf8Step step = utf8_step(bytes, position);
    return step.truncated ? tail : 0;
  }
  return 0;
}

void append_utf8(std::uint32_t c, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace trireme::text
