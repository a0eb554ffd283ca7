#pragma once
#include <string_view>

#include "text/split/char_scan.hpp"
#include "text/split/split_loop.hpp"

/// The GPT-2 pre-tokenizer pattern in C++. Linear in the text, without backtracking, because every
/// alternative is a run of one class.
namespace trireme::text {

/// The pattern as written in tokenizer.json.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Gpt2Pattern {
  /// Returns the end of the pre-token that begins at `p` < `end`.
  static const char* pre_token_end(const char* p, const char* end) noexcept {
    if (*p == '\'') {
      if (const std::size_t length = scan::contraction(p, end); length != 0) return p + length;
    }
    std::size_t length = 0;
    std::uint8_t first = scan::class_at(p, length) & scan::kNamed;
    if (*p == ' ' && end - p > 1) {  // " ?" before a run
      const std::uint8_t next = scan::class_at(p + 1) & scan::kNamed;
      if (next != kSpace) {
        first = next;
        ++p;
      }
    }
    if (first == kSpace) return scan::space_end(p, end);
    return first == 0 ? scan::run_without(p, end, scan::kNamed) : scan::run_of(p, end, first);
  }

  /// Returns the bits of the bytes where the pre-tokens after the one at `p` begin, as far as these
  /// are certain.
  static std::uint64_t starts(const char* p, std::size_t left) noexcept {
    const scan::Masks m(p, left);
    if (m.size <= scan::kLookAhead) return 0;
    const auto begins = [&m](std::uint64_t run) { return run & ~(run << 1) & ~(m.blanks << 1); };
    const std::uint64_t symbols = begins(m.symbols);
    const std::uint64_t last_space = m.spaces & ~(m.spaces >> 1);  // belongs to the next word
    std::uint64_t starts = begins(m.letters) | begins(m.numbers) | symbols | last_space |
                           (m.spaces & ~(m.spaces << 1));
    const std::size_t last = m.size - scan::kLookAhead;
    std::uint64_t marks = m.window.equal('\'') & symbols & scan::Masks::low_bits(last);
    for (; marks != 0; marks &= marks - 1) {
      const auto at = static_cast<std::size_t>(std::countr_zero(marks));
      const std::size_t length = scan::contraction(p + at, p + m.size);
      if (length != 0) starts = scan::pass_contraction(starts, at, length);
    }
    return scan::Masks::up_to(last, starts);
  }
};

}  // namespace trireme::text
