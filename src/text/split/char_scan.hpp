#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

/// What all splitters are made of: the class of one character and the end of a run of a class.
/// Text must be valid UTF-8; `p` stands at the start of a character, `end` after the last.
namespace trireme::scan {

inline constexpr std::uint8_t kNamed = kLetter | kNumber | kSpace;  // not [^\s\p{L}\p{N}]

/// Class bits of ASCII that patterns ask for.
inline constexpr std::array<std::uint8_t, 128> kAscii = [] {
  std::array<std::uint8_t, 128> classes{};
  for (int c = 'a'; c <= 'z'; ++c) {
    classes[c] = kLetter | kSmall;
    classes[c - 'a' + 'A'] = kLetter | kCapital;
  }
  for (int c = '0'; c <= '9'; ++c) classes[c] = kNumber;
  for (int c = '\t'; c <= '\r'; ++c) classes[c] = kSpace;
  classes[' '] = kSpace;
  return classes;
}();

/// Class of the character at `p`; sets its length.
inline std::uint8_t class_at(const char* p, std::size_t& length) noexcept {
  const auto lead = static_cast<unsigned char>(*p);
  if (lead < 0x80) {
    length = 1;
    return kAscii[lead];
  }
  return char_class(utf8_decode(p, length));
}

inline std::uint8_t class_at(const char* p) noexcept {
  std::size_t length = 0;
  return class_at(p, length);
}

/// End of the run of characters with a class in `any` that goes on at `p`.
inline const char* run_of(const char* p, const char* end, std::uint8_t any) noexcept {
  std::size_t length = 0;
  while (p < end && (class_at(p, length) & any) != 0) p += length;
  return p;
}

/// End of the run of characters with no class in `none` that goes on at `p`.
inline const char* run_without(const char* p, const char* end, std::uint8_t none) noexcept {
  std::size_t length = 0;
  while (p < end && (class_at(p, length) & none) == 0) p += length;
  return p;
}

inline bool is_newline(char c) noexcept {
  return c == '\n' || c == '\r';
}

/// Length of the contraction at the apostrophe `p`, 0 if there is none.
inline std::size_t contraction(const char* p, const char* end) noexcept {
  const std::ptrdiff_t left = end - p;
  if (left < 2) return 0;
  const char first = p[1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (left < 3) return 0;
  const bool long_form =
      ((first == 'r' || first == 'v') && p[2] == 'e') || (first == 'l' && p[2] == 'l');
  return long_form ? 3 : 0;
}

/// The same for (?i:...), where the long s (U+017F) is an s as well.
inline std::size_t contraction_any_case(const char* p, const char* end) noexcept {
  const std::ptrdiff_t left = end - p;
  if (left < 2) return 0;
  if (left >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  if (static_cast<unsigned char>(p[1]) >= 0x80) return 0;
  const auto lower = [](char c) { return static_cast<char>(c | 0x20); };
  const std::array<char, 3> folded = {*p, lower(p[1]), left >= 3 ? lower(p[2]) : '\0'};
  return contraction(folded.data(), folded.data() + (left >= 3 ? 3 : 2));
}

/// End of what \s+(?!\S)|\s+ takes at white space `p`: the last character before a word is left to
/// that word, unless it is the only one.
inline const char* space_end(const char* p, const char* end) noexcept {
  const char* last = p;
  const char* stop = p;
  std::size_t length = 0;
  while (stop < end && (class_at(stop, length) & kSpace) != 0) {
    last = stop;
    stop += length;
  }
  return stop == end || last == p ? stop : last;
}

}  // namespace trireme::scan
