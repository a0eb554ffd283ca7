#pragma once
#include <cstdint>

/// Character classes of Hugging Face `tokenizers` (Unicode 16) as bits in a two-stage table. System
/// regex libraries have older tables and would split newer letters differently.
namespace trireme::text {

inline constexpr std::uint8_t kLetter = 1;       // \p{L}
inline constexpr std::uint8_t kNumber = 2;       // \p{N}
inline constexpr std::uint8_t kSpace = 4;        // \s, which is also White_Space
inline constexpr std::uint8_t kWord = 8;         // \w of the `single_word` check
inline constexpr std::uint8_t kMark = 16;        // \p{M}
inline constexpr std::uint8_t kCapital = 32;     // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kSmall = 64;       // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kNfcActive = 128;  // text without such characters is already NFC

namespace unicode {
extern const std::uint8_t kPageOf[0x1100];
extern const std::uint8_t kPages[][256];
}  // namespace unicode

/// Returns the class bits of a code point up to U+10FFFF.
inline std::uint8_t char_class(std::uint32_t code_point) noexcept {
  return unicode::kPages[unicode::kPageOf[code_point >> 8]][code_point & 0xFF];
}

}  // namespace trireme::text
