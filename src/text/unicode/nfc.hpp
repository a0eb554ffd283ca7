#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// Unicode normal form C as Hugging Face `tokenizers` makes it: its tables are those of Unicode 12,
/// older than what its patterns use, so pairs and marks added since stay as they are.
namespace trireme {

/// True if `text` (valid UTF-8) holds no character that NFC could move, join or replace; then it is
/// NFC. Fast: nearly all text passes.
bool surely_nfc(std::string_view text) noexcept;

/// NFC of `text` (valid UTF-8). Linear but for runs of combining marks, which are sorted.
/// Source: Unicode Standard Annex 15; conjoining Hangul: chapter 3.12.
std::string to_nfc(std::string_view text);

namespace unicode {

/// Classes are numbered in their order, not by the standard's values; absent ones are 0.
struct CombiningClass {
  std::uint32_t code_point;
  std::uint8_t order;
};

struct Decomposition {
  std::uint32_t code_point;
  std::uint16_t start;  // in kDecomposed
  std::uint8_t size;
};

struct Composition {
  std::uint32_t first;
  std::uint32_t second;
  std::uint32_t result;
};

}  // namespace unicode
}  // namespace trireme
