#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// Lower case and accents as in Hugging Face `tokenizers`.
namespace trireme::text {

/// Returns `text` (valid UTF-8) in lower case. Each character is replaced by itself, so the form of a
/// sigma does not depend on its place in a word.
std::string lowercased(std::string_view text);

/// Returns `text` (valid UTF-8) without marks (general category M).
std::string without_accents(std::string_view text);

namespace unicode {

/// The lower case of a character.
struct Lowered {
  std::uint32_t code_point;
  std::uint16_t start;  // index in kLoweredParts
  std::uint8_t size;
};

struct AccentRange {
  std::uint32_t first;
  std::uint32_t last;
};

}  // namespace unicode
}  // namespace trireme::text
