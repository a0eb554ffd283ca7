#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "text/split/gpt2_split.hpp"
#include "text/split/word_split.hpp"

/// How text between added tokens is cut into pieces before BPE: steps, each of which cuts what the
/// one before leaves.
namespace trireme {

enum class SplitStep : std::uint8_t {
  gpt2,
  llama3,  // also what cl100k files say after conversion to tokenizer.json
  qwen2,
  qwen35,
  cl100k,  // as tiktoken 0.14 writes it
  o200k,
  tekken,
  digits,         // runs of digits apart from the rest
  single_digits,  // every digit apart
  prefix_space,   // cuts nothing: a space goes before text that does not begin with one
};

/// Name for errors and hashes; never changes.
std::string_view name_of(SplitStep step);

/// The step for a regular expression as tokenizer.json writes it; none if it is unknown.
std::optional<SplitStep> step_of_pattern(std::string_view regex);

/// The expression of a step; empty for those that have none.
std::string_view regex_of(SplitStep step);

/// Names of all known patterns, for errors.
std::string_view known_patterns();

using Llama3Pattern = WordPattern<WordRules{.max_digits = 3}>;
using Qwen2Pattern = WordPattern<WordRules{}>;
using Qwen35Pattern = WordPattern<WordRules{.marks_in_words = true}>;
// Oniguruma reads "{1,3}+" as one or more of {1,3}, so digits have no limit there.
using Cl100kPattern = WordPattern<WordRules{.max_digits = 0, .keep_final_space = true}>;
using O200kPattern = WordPattern<WordRules{.max_digits = 3,
                                           .contractions = Contractions::attached,
                                           .cased = true,
                                           .slash_after_symbols = true}>;
using TekkenPattern = WordPattern<WordRules{
    .contractions = Contractions::none, .cased = true, .slash_after_symbols = true}>;

/// Numbers against the rest, one by one or in runs. `Digits` asks Rust's own tables, which are
/// those of Unicode 17: two blocks more than the patterns' \p{N}.
template <bool single>
struct DigitPattern {
  static const char* piece_end(const char* p, const char* end) noexcept {
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

/// split_by for a step, which is not prefix_space.
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

}  // namespace trireme
