#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// Unicode normal forms C, KC, D and KD as in Hugging Face `tokenizers`. The tables are those of Unicode
/// 12, older than those of its patterns, so newer pairs and marks stay unchanged.
namespace trireme::text {

/// Returns true if `text` (valid UTF-8) has no character that NFC could move, compose or replace.
/// The text is then NFC. Fast: nearly all text passes.
bool surely_nfc(std::string_view text) noexcept;

/// Returns the NFC of `text` (valid UTF-8). Linear except for runs of combining marks, which are
/// sorted. Source: Unicode Standard Annex 15; Hangul: chapter 3.12.
std::string to_nfc(std::string_view text);

/// Returns the NFKC of `text` (valid UTF-8): characters with a compatible form, such as ligatures
/// and wide letters, are replaced before NFC.
std::string to_nfkc(std::string_view text);

/// Returns the NFD of `text` (valid UTF-8): characters are decomposed, and marks are sorted.
std::string to_nfd(std::string_view text);

/// Returns the NFKD of `text` (valid UTF-8): to_nfd() after the replacements of to_nfkc().
std::string to_nfkd(std::string_view text);

namespace unicode {

/// The order of a combining class. Classes are numbered by their order, not by the values of the
/// standard; 0 means none.
struct CombiningClass {
  std::uint32_t code_point;
  std::uint8_t order;
};

struct Decomposition {
  std::uint32_t code_point;
  std::uint16_t start;  // index in kDecomposed
  std::uint8_t size;
};

struct Composition {
  std::uint32_t first;
  std::uint32_t second;
  std::uint32_t result;
};

}  // namespace unicode
}  // namespace trireme::text
