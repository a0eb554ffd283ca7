#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "text/split/char_scan.hpp"
#include "text/split/split_loop.hpp"

/// The patterns after GPT-2 (cl100k, Llama 3, Qwen, o200k, ...) in C++. They are variants of one
/// pattern:
///   words    [^\r\n\p{L}\p{N}]?\p{L}+            one symbol or blank may precede a word
///   numbers  \p{N}{1,3}
///   symbols   ?[^\s\p{L}\p{N}]+[\r\n]*           include the newlines after them
///   spaces   \s*[\r\n]+|\s+(?!\S)|\s+            up to the last newline, otherwise all except the
///            last
/// Contractions ('s 't 're 've 'm 'll 'd in any case) come either before all others or at the end
/// of a word.
namespace trireme::text {

enum class Contractions { none, apart, attached };

struct WordRules {
  std::size_t max_digits = 1;  // per pre-token; 0: no limit
  Contractions contractions = Contractions::apart;
  bool marks_in_words = false;       // [\p{L}\p{M}]+; marks are not symbols
  bool cased = false;                // a word ends between a small letter and a capital
  bool slash_after_symbols = false;  // [\r\n/]*
  bool keep_final_space = false;     // \s++$: white space at the end of the text is one pre-token
};

template <WordRules rules>
struct WordPattern {
  /// Returns the end of the pre-token that begins at `p` < `end`.
  static const char* pre_token_end(const char* p, const char* end) noexcept {
    if constexpr (rules.contractions == Contractions::apart) {
      if (*p == '\'') {
        if (const std::size_t size = scan::contraction_any_case(p, end); size != 0) return p + size;
      }
    }
    std::size_t length = 0;
    const std::uint8_t first = scan::class_at(p, length);
    if (const char* stop = word_end(p, first, length, end); stop != nullptr) {
      if constexpr (rules.contractions == Contractions::attached) {
        if (stop < end && *stop == '\'') stop += scan::contraction_any_case(stop, end);
      }
      return stop;
    }
    if ((first & kNumber) != 0) return number_end(p, end);
    const char* const symbols = *p == ' ' ? p + 1 : p;
    const char* const stop = scan::run_without(symbols, end, kNoSymbol);
    return stop > symbols ? line_end(stop, end) : space_end(p, end);
  }

  /// Returns the bits of the bytes where the pre-tokens after the one at `p` begin, as far as these
  /// are certain.
  static std::uint64_t starts(const char* p, std::size_t left) noexcept {
    const scan::Masks m(p, left);
    if (m.size <= scan::kLookAhead) return 0;
    const std::uint64_t newlines = m.window.equal('\n') | m.window.equal('\r');

    // Newlines after symbols belong to the symbols: the carry of the sum passes through the whole
    // run.
    const std::uint64_t taken_from = newlines & (m.symbols << 1);
    const std::uint64_t takeable =
        rules.slash_after_symbols ? newlines | m.window.equal('/') : newlines;
    const std::uint64_t taken = (takeable & ~(takeable + taken_from)) | taken_from;
    const std::uint64_t symbols = m.symbols & ~taken;
    const std::uint64_t spaces = m.spaces & ~taken;
    const std::uint64_t inline_spaces = spaces & ~newlines;

    const std::uint64_t first_symbols = symbols & ~(symbols << 1) & ~(m.blanks << 1);
    std::uint64_t words = m.letters & ~((m.letters | inline_spaces | first_symbols) << 1);
    if constexpr (rules.cased)
      words |= m.window.between('A', 'Z') & m.window.between('a', 'z') << 1;
    const std::uint64_t starts = words | first_symbols | number_starts(m.numbers) |
                                 (spaces & ~(spaces << 1)) | (inline_spaces & ~(m.spaces >> 1)) |
                                 line_starts(inline_spaces, newlines & ~taken);

    // White space that continues beyond the window may still be one pre-token.
    const std::uint64_t solid = ~m.spaces & scan::Masks::low_bits(m.size);
    const auto last_solid = static_cast<std::size_t>(std::bit_width(solid));
    const std::size_t last = std::min(m.size - scan::kLookAhead, last_solid);
    return scan::Masks::up_to(last, contraction_starts(m, first_symbols, last, starts));
  }

 private:
  /// Returns every digit, or the first digit of each group of max_digits.
  static std::uint64_t number_starts(std::uint64_t numbers) noexcept {
    if constexpr (rules.max_digits == 1) return numbers;
    std::uint64_t starts = numbers & ~(numbers << 1);
    if constexpr (rules.max_digits == 3) {
      const std::uint64_t fourth = numbers & numbers << 1 & numbers << 2 & numbers << 3;
      for (std::uint64_t next = starts << 3 & fourth; next != 0; next = next << 3 & fourth)
        starts |= next;
    }
    return starts;
  }

  /// Returns the positions where white space continues after its last newline.
  static std::uint64_t line_starts(std::uint64_t inline_spaces, std::uint64_t newlines) noexcept {
    std::uint64_t starts = inline_spaces & newlines << 1;
    // The carry of the sum reaches the byte after each run. If this byte is a newline, the one
    // before was not the last.
    std::uint64_t not_last = (inline_spaces + starts) & newlines;
    for (; not_last != 0; not_last &= not_last - 1) {
      const std::uint64_t before = starts & ((not_last & ~(not_last - 1)) - 1);
      starts &= ~std::bit_floor(before);
    }
    return starts;
  }

  static std::uint64_t contraction_starts(const scan::Masks& m, std::uint64_t first_symbols,
                                          std::size_t last, std::uint64_t starts) noexcept {
    if constexpr (rules.contractions == Contractions::none) return starts;
    std::uint64_t marks = m.window.equal('\'') & first_symbols & scan::Masks::low_bits(last + 1);
    if constexpr (rules.contractions == Contractions::attached) marks &= m.letters << 1;
    std::size_t done = 0;  // end of the last contraction; no contraction is attached to it
    for (; marks != 0; marks &= marks - 1) {
      const auto at = static_cast<std::size_t>(std::countr_zero(marks));
      const std::size_t length = scan::contraction_any_case(m.p + at, m.p + m.size);
      if (length == 0) continue;
      if constexpr (rules.contractions == Contractions::attached) {
        if (at == done) continue;
        done = at + length;
        starts &= ~(std::uint64_t{1} << at);
      }
      starts = scan::pass_contraction(starts, at, length);
    }
    return starts;
  }

  static constexpr std::uint8_t kWordClass = rules.marks_in_words ? kLetter | kMark : kLetter;
  static constexpr std::uint8_t kNoSymbol =
      rules.marks_in_words ? scan::kNamed | kMark : scan::kNamed;

  /// Returns null if no word begins at `p`. `first` is the class of its character.
  static const char* word_end(const char* p, std::uint8_t first, std::size_t length,
                              const char* end) noexcept {
    const bool may_lead = (first & (kLetter | kNumber)) == 0 && !scan::is_newline(*p);
    if constexpr (rules.cased) {
      // Order of attempts: capitals with a small letter, then capitals only; each first with the
      // leading symbol and then without.
      const char* const led = may_lead ? p + length : p;
      const char* stop = small_word_end(led, end);
      if (stop == nullptr && may_lead) stop = small_word_end(p, end);
      if (stop == nullptr) stop = capital_word_end(led, end);
      if (stop == nullptr && may_lead) stop = capital_word_end(p, end);
      return stop;
    } else {
      const char* const led = p + length;
      if (may_lead && led < end && (scan::class_at(led) & kWordClass) != 0)
        return scan::run_of(led, end, kWordClass);
      return (first & kWordClass) != 0 ? scan::run_of(led, end, kWordClass) : nullptr;
    }
  }

  /// Returns the end of [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `p`; null if
  /// there is no match.
  static const char* small_word_end(const char* p, const char* end) noexcept {
    const char* both = nullptr;  // end of the last character of the run that has both classes
    std::size_t length = 0;
    std::uint8_t next = 0;
    for (; p < end && ((next = scan::class_at(p, length)) & kCapital) != 0; p += length) {
      if ((next & kSmall) != 0) both = p + length;
    }
    if (p < end && (next & kSmall) != 0) return scan::run_of(p, end, kSmall);
    return both;  // backtracking: the last such character matches the second part
  }

  /// Returns the end of [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+ if no small letter follows; null if there
  /// is no match.
  static const char* capital_word_end(const char* p, const char* end) noexcept {
    const char* const stop = scan::run_of(p, end, kCapital);
    return stop > p ? stop : nullptr;
  }

  static const char* number_end(const char* p, const char* end) noexcept {
    if constexpr (rules.max_digits == 0) return scan::run_of(p, end, kNumber);
    std::size_t length = 0;
    for (std::size_t i = 0; i < rules.max_digits && p < end; ++i, p += length) {
      if ((scan::class_at(p, length) & kNumber) == 0) break;
    }
    return p;
  }

  /// Returns the end of [\r\n]* or [\r\n/]* at `p`.
  static const char* line_end(const char* p, const char* end) noexcept {
    while (p < end && (scan::is_newline(*p) || (rules.slash_after_symbols && *p == '/'))) ++p;
    return p;
  }

  static const char* space_end(const char* p, const char* end) noexcept {
    const char* after_newline = nullptr;
    const char* stop = p;
    std::size_t length = 0;
    for (; stop < end && (scan::class_at(stop, length) & kSpace) != 0; stop += length) {
      if (scan::is_newline(*stop)) after_newline = stop + 1;
    }
    if (rules.keep_final_space && stop == end) return stop;
    return after_newline != nullptr ? after_newline : scan::space_end(p, end);
  }
};

}  // namespace trireme::text
