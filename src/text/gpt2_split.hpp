#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "text/unicode_class.hpp"
#include "text/utf8.hpp"

/// The GPT-2 pre-tokenizer pattern by hand:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Linear in the text, no backtracking: every alternative is a run of one class.
namespace trireme {

/// The pattern as tokenizer.json writes it.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace gpt2 {

inline constexpr std::uint8_t kClasses =
    kLetter | kNumber | kSpace;  // none of them: the third alternative

inline constexpr std::array<std::uint8_t, 128> kAscii = [] {
  std::array<std::uint8_t, 128> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = kLetter;
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
  return char_class(utf8_decode(p, length)) & kClasses;
}

/// End of the run of class `wanted` that goes on at `p`.
inline const char* run_end(const char* p, const char* end, std::uint8_t wanted) noexcept {
  std::size_t length = 0;
  while (p < end && class_at(p, length) == wanted) p += length;
  return p;
}

/// Length of the contraction at `p` (which holds an apostrophe), 0 if there is none.
inline std::size_t contraction(const char* p, const char* end) noexcept {
  const std::ptrdiff_t left = end - p;
  if (left < 2) return 0;
  const char first = p[1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (left < 3) return 0;
  const char second = p[2];
  return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l') ? 3
                                                                                              : 0;
}

/// End of the piece of white space that begins at `p`: \s+(?!\S) leaves the last character before a
/// word to that word.
inline const char* space_end(const char* p, const char* end) noexcept {
  const char* last = p;
  const char* stop = p;
  std::size_t length = 0;
  while (stop < end && class_at(stop, length) == kSpace) {
    last = stop;
    stop += length;
  }
  return stop == end || last == p ? stop : last;
}

}  // namespace gpt2

/// Calls emit(piece) for consecutive pieces that together are `text`, which must be valid UTF-8.
template <class Emit>
void split_gpt2(std::string_view text, Emit&& emit) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* stop = p;
    std::size_t length = 0;
    std::uint8_t first = gpt2::class_at(p, length);
    if (*p == '\'' && gpt2::contraction(p, end) != 0) {
      stop = p + gpt2::contraction(p, end);
    } else if (first != kSpace) {
      stop = gpt2::run_end(p + length, end, first);
    } else if (*p == ' ' && end - p > 1 && (first = gpt2::class_at(p + 1, length)) != kSpace) {
      stop = gpt2::run_end(p + 1 + length, end, first);
    } else {
      stop = gpt2::space_end(p, end);
    }
    emit(std::string_view(p, static_cast<std::size_t>(stop - p)));
    p = stop;
  }
}

}  // namespace trireme
