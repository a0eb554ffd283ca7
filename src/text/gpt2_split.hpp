#pragma once
#include <string_view>

#include "text/char_scan.hpp"

/// The GPT-2 pre-tokenizer pattern by hand. Linear in the text, no backtracking: every alternative
/// is a run of one class.
namespace trireme {

/// The pattern as tokenizer.json writes it.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Gpt2Pattern {
  /// End of the piece that begins at `p` < `end`.
  static const char* piece_end(const char* p, const char* end) noexcept {
    if (*p == '\'') {
      if (const std::size_t length = scan::contraction(p, end); length != 0) return p + length;
    }
    std::size_t length = 0;
    std::uint8_t first = scan::class_at(p, length) & scan::kNamed;
    if (*p == ' ' && end - p > 1) {  // " ?" of the run behind it
      const std::uint8_t next = scan::class_at(p + 1) & scan::kNamed;
      if (next != kSpace) {
        first = next;
        ++p;
      }
    }
    if (first == kSpace) return scan::space_end(p, end);
    return first == 0 ? scan::run_without(p, end, scan::kNamed) : scan::run_of(p, end, first);
  }
};

/// Calls emit(piece) for consecutive pieces that together are `text`, which must be valid UTF-8.
template <class Emit>
void split_gpt2(std::string_view text, Emit&& emit) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* const stop = Gpt2Pattern::piece_end(p, end);
    emit(std::string_view(p, static_cast<std::size_t>(stop - p)));
    p = stop;
  }
}

}  // namespace trireme
