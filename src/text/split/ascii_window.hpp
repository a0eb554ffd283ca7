#pragma once
#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace trireme {

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

}  // namespace trireme
