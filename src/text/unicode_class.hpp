#pragma once
#include <cstdint>

/// Character classes as Hugging Face `tokenizers` sees them (Unicode 16), as bits, in a two-stage
/// table: a regex library of the system has older tables and would split newer letters differently.
namespace trireme {

inline constexpr std::uint8_t kLetter = 1;  // \p{L}
inline constexpr std::uint8_t kNumber = 2;  // \p{N}
inline constexpr std::uint8_t kSpace = 4;   // \s, which is also White_Space
inline constexpr std::uint8_t kWord = 8;    // \w of the `single_word` check

namespace unicode {
extern const std::uint8_t kPageOf[0x1100];
extern const std::uint8_t kPages[][256];
}  // namespace unicode

/// Class bits of a code point up to U+10FFFF.
inline std::uint8_t char_class(std::uint32_t code_point) noexcept {
  return unicode::kPages[unicode::kPageOf[code_point >> 8]][code_point & 0xFF];
}

}  // namespace trireme
