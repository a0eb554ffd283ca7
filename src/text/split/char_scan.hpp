#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {

/// 64 bytes of text. Each query returns a bit mask in which bit i belongs to byte i. Bytes beyond
/// ASCII are in no range.
class AsciiWindow {
 public:
  static constexpr std::size_t kSize = 64;

  /// kSize bytes from `p` must be readable.
  explicit AsciiWindow(const char* p) noexcept : p_(p) {}

  [[nodiscard]] std::uint64_t equal(char c) const noexcept { return between(c, c); }

  /// Returns the bytes from `low` to `high` (inclusive, 0x01 to 0x7E).
  [[nodiscard]] std::uint64_t between(char low, char high) const noexcept;
  [[nodiscard]] std::uint64_t letters() const noexcept;

  [[nodiscard]] std::uint64_t past_ascii() const noexcept;

 private:
  template <class Test>
  [[nodiscard]] std::uint64_t each(const Test& test) const noexcept;

  const char* p_;
};

#if defined(__SSE2__)

template <class Test>
std::uint64_t AsciiWindow::each(const Test& test) const noexcept {
  std::uint64_t bits = 0;
  for (int i = 3; i >= 0; --i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p_ + 16 * i));
    bits = bits << 16 | static_cast<unsigned>(_mm_movemask_epi8(test(bytes)));
  }
  return bits;
}

inline std::uint64_t AsciiWindow::between(char low, char high) const noexcept {
  const __m128i below = _mm_set1_epi8(static_cast<char>(low - 1));  // the comparison is signed
  const __m128i above = _mm_set1_epi8(static_cast<char>(high + 1));
  return each([&](__m128i bytes) {
    return _mm_and_si128(_mm_cmpgt_epi8(bytes, below), _mm_cmplt_epi8(bytes, above));
  });
}

inline std::uint64_t AsciiWindow::letters() const noexcept {
  const __m128i below = _mm_set1_epi8('a' - 1);
  const __m128i above = _mm_set1_epi8('z' + 1);
  return each([&](__m128i bytes) {
    const __m128i lower = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    return _mm_and_si128(_mm_cmpgt_epi8(lower, below), _mm_cmplt_epi8(lower, above));
  });
}

inline std::uint64_t AsciiWindow::past_ascii() const noexcept {
  return each([](__m128i bytes) { return bytes; });
}

#else

template <class Test>
std::uint64_t AsciiWindow::each(const Test& test) const noexcept {
  std::uint64_t bits = 0;
  for (std::size_t i = kSize; i-- > 0;) bits = bits << 1 | (test(p_[i]) ? 1U : 0U);
  return bits;
}

inline std::uint64_t AsciiWindow::between(char low, char high) const noexcept {
  return each([&](char c) { return c >= low && c <= high; });
}

inline std::uint64_t AsciiWindow::letters() const noexcept {
  return each([](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

inline std::uint64_t AsciiWindow::past_ascii() const noexcept {
  return each([](char c) { return (static_cast<unsigned char>(c) & 0x80) != 0; });
}

#endif

}  // namespace trireme::text

/// The building blocks of all splitters: character classes and runs of a class. Text must be valid
/// UTF-8. `p` is the start of a character, `end` the end of the text.
namespace trireme::text::scan {

inline constexpr std::uint8_t kNamed = kLetter | kNumber | kSpace;  // not [^\s\p{L}\p{N}]
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

/// Returns the class of the character at `p` and sets its length.
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

/// Returns the end of the run of characters with a class in `any`, starting at `p`.
inline const char* run_of(const char* p, const char* end, std::uint8_t any) noexcept {
  std::size_t length = 0;
  while (p < end && (class_at(p, length) & any) != 0) p += length;
  return p;
}

/// Returns the end of the run of characters without a class in `none`, starting at `p`.
inline const char* run_without(const char* p, const char* end, std::uint8_t none) noexcept {
  std::size_t length = 0;
  while (p < end && (class_at(p, length) & none) == 0) p += length;
  return p;
}

inline bool is_newline(char c) noexcept {
  return c == '\n' || c == '\r';
}

/// Returns the length of the contraction at the apostrophe `p`; 0 if there is none.
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

/// Like contraction, but for (?i:...), where the long s (U+017F) also counts as s.
inline std::size_t contraction_any_case(const char* p, const char* end) noexcept {
  const std::ptrdiff_t left = end - p;
  if (left < 2) return 0;
  if (left >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  if (static_cast<unsigned char>(p[1]) >= 0x80) return 0;
  const auto lower = [](char c) { return static_cast<char>(c | 0x20); };
  const std::array<char, 3> folded = {*p, lower(p[1]), left >= 3 ? lower(p[2]) : '\0'};
  return contraction(folded.data(), folded.data() + (left >= 3 ? 3 : 2));
}

/// Returns the end of the match of \s+(?!\S)|\s+ at white space `p`. The last character before a
/// word is left for the word, unless it is the only one.
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

/// The classes of the next 64 bytes as bit masks. With them, the fast path of the splitters finds
/// the starts of pre-tokens without a branch for each byte. In ASCII, a start depends on the
/// neighbours only. All other cases (another script, a run of white space, the last bytes) are left
/// to `pre_token_end`, which defines the pattern.
struct Masks {
  const char* p;
  AsciiWindow window;
  std::size_t size;  // number of bytes before the end of the text or of ASCII
  std::uint64_t letters;
  std::uint64_t numbers;
  std::uint64_t spaces;
  std::uint64_t symbols;
  std::uint64_t blanks;  // U+0020

  /// AsciiWindow::kSize bytes must be readable, and `left` of them are text.
  Masks(const char* at, std::size_t left) noexcept
      : p(at),
        window(at),
        size(left < AsciiWindow::kSize ? left : AsciiWindow::kSize),
        letters(window.letters()),
        numbers(window.between('0', '9')),
        blanks(window.equal(' ')) {
    if (const std::uint64_t other = window.past_ascii(); other != 0) {
      const auto ascii = static_cast<std::size_t>(std::countr_zero(other));
      if (ascii < size) size = ascii;
    }
    spaces = blanks | window.between('\t', '\r');
    symbols = ~(letters | numbers | spaces) & low_bits(size);
  }

  static std::uint64_t low_bits(std::size_t count) noexcept {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  }

  /// Returns the starts after the first byte that are certain if all starts up to byte `last` are
  /// certain.
  static std::uint64_t up_to(std::size_t last, std::uint64_t starts) noexcept {
    return starts & low_bits(last + 1) & ~std::uint64_t{1};
  }
};

/// A contraction has up to three bytes, so that many bytes after a start must be known.
inline constexpr std::size_t kLookAhead = 3;

/// Moves the start after the apostrophe `at` to the end of its contraction of `length` bytes.
inline std::uint64_t pass_contraction(std::uint64_t starts, std::size_t at,
                                      std::size_t length) noexcept {
  const std::uint64_t inside = Masks::low_bits(length - 1) << (at + 1);
  return (starts & ~inside) | std::uint64_t{1} << (at + length);
}

}  // namespace trireme::text::scan
