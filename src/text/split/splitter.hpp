#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "text/split/gpt2_split.hpp"
#include "text/split/word_split.hpp"

/// Pre-tokenization: splits the text between added tokens. Each step splits the results of the step
/// before.
namespace trireme::text {

enum class SplitStep : std::uint8_t {
  gpt2,
  llama3,  // also cl100k files after conversion to tokenizer.json
  qwen2,
  qwen35,
  cl100k,  // the form of tiktoken 0.14
  o200k,
  tekken,
  digits,         // separates runs of digits
  single_digits,  // separates every digit
  prefix_space,   // does not split: adds a space before text that does not begin with one
};

/// Returns the name for errors and hashes. Names never change.
std::string_view name_of(SplitStep step);

/// Returns the step for a regular expression of tokenizer.json; none if it is unknown.
std::optional<SplitStep> step_of_pattern(std::string_view regex);

/// Returns the regular expression of a step; empty if it has none.
std::string_view regex_of(SplitStep step);

/// Returns the names of all known patterns, for errors.
std::string_view known_patterns();

using Llama3Pattern = WordPattern<WordRules{.max_digits = 3}>;
using Qwen2Pattern = WordPattern<WordRules{}>;
using Qwen35Pattern = WordPattern<WordRules{.marks_in_words = true}>;
// Oniguruma reads "{1,3}+" as one or more of {1,3}, so the number of digits is not limited.
using Cl100kPattern = WordPattern<WordRules{.max_digits = 0, .keep_final_space = true}>;
using O200kPattern = WordPattern<WordRules{.max_digits = 3,
                                           .contractions = Contractions::attached,
                                           .cased = true,
                                           .slash_after_symbols = true}>;
using TekkenPattern = WordPattern<WordRules{
    .contractions = Contractions::none, .cased = true, .slash_after_symbols = true}>;

/// Separates numbers from other text, one by one or in runs. `Digits` uses the Unicode 17 tables of
/// Rust, which have two more blocks than \p{N} of the patterns.
template <bool single>
struct DigitPattern {
  static const char* pre_token_end(const char* p, const char* end) noexcept {
    std::size_t length = 0;
    const bool number = is_number(p, length);
    do p += length;
    while (!(number && single) && p < end && is_number(p, length) == number);
    return p;
  }

 private:
  static bool is_number(const char* p, std::size_t& length) noexcept {
    const std::uint32_t c = utf8_decode(p, length);
    return (char_class(c) & kNumber) != 0 || (c >= 0x11DE0 && c <= 0x11DE9) ||
           (c >= 0x16FF4 && c <= 0x16FF6);
  }
};

/// Calls split_by with the pattern of `step`, which must not be prefix_space.
template <class Emit>
void split_by(SplitStep step, std::string_view text, const Emit& emit) {
  switch (step) {
    case SplitStep::gpt2:
      return split_by<Gpt2Pattern>(text, emit);
    case SplitStep::llama3:
      return split_by<Llama3Pattern>(text, emit);
    case SplitStep::qwen2:
      return split_by<Qwen2Pattern>(text, emit);
    case SplitStep::qwen35:
      return split_by<Qwen35Pattern>(text, emit);
    case SplitStep::cl100k:
      return split_by<Cl100kPattern>(text, emit);
    case SplitStep::o200k:
      return split_by<O200kPattern>(text, emit);
    case SplitStep::tekken:
      return split_by<TekkenPattern>(text, emit);
    case SplitStep::digits:
      return split_by<DigitPattern<false>>(text, emit);
    case SplitStep::single_digits:
      return split_by<DigitPattern<true>>(text, emit);
    case SplitStep::prefix_space:
      break;
  }
  emit(text);
}

}  // namespace trireme::text
