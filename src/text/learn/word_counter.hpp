#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/learn/word_table.hpp"
#include "text/split/splitter.hpp"

namespace trireme {

/// Tokens that are taken out of training texts, wherever they stand. Immutable.
class CutTokens {
 public:
  explicit CutTokens(std::vector<std::string> contents);

  /// Appends the parts of `text` in order: a token's id is its index in contents().
  void split(std::string_view text, std::vector<TextPart>& parts) const {
    TextParts found;
    matcher_.split(text, /*match=*/true, found);
    parts.insert(parts.end(), found.list.begin(), found.list.end());
  }

  [[nodiscard]] const std::vector<std::string>& contents() const noexcept { return contents_; }

 private:
  std::vector<std::string> contents_;
  AddedTokenMatcher matcher_;
};

/// Counts the pieces that a pattern cuts from training texts. Only the multiset of pieces
/// matters, so the result is independent of order, threads and ranks: count apart, then merge.
class WordCounter {
 public:
  WordCounter() = default;  // GPT-2's pattern

  /// `pattern`: one with an expression (regex_of). `cut` (or null): tokens that are
  /// taken out of the texts first. Each occurrence is then a word of its own, of plain
  /// characters instead of the byte alphabet: what Hugging Face does with tokens that
  /// were added to the tokenizer before its training.
  explicit WordCounter(SplitStep pattern, std::shared_ptr<const CutTokens> cut = nullptr)
      : pattern_(pattern), cut_(std::move(cut)) {}

  /// One training text, cut as a whole. Throws Error(data) if it is not valid UTF-8.
  void add(std::string_view text);

  /// Every line of `text`, its "\n" included, as a text of its own: what Hugging Face's
  /// train(files) does. White space at line ends is cut differently than by add.
  void add_lines(std::string_view text);

  /// `count` more of a piece counted elsewhere.
  void add_word(std::string_view piece, std::uint64_t count);

  /// `count` more of a token that was cut out elsewhere.
  void add_cut_token(std::string_view token, std::uint64_t count);

  void merge(const WordCounter& other);

  /// Forgets all words, not how they are cut.
  void clear();

  [[nodiscard]] SplitStep pattern() const noexcept { return pattern_; }

  /// The pieces (raw bytes) with their counts, in the order of WordTable.
  [[nodiscard]] const WordTable& pieces() const noexcept { return pieces_; }

  /// The tokens that were cut out, with their counts.
  [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& cut_tokens()
      const noexcept {
    return cut_tokens_;
  }

  /// Distinct words, tokens that were cut out included.
  [[nodiscard]] std::size_t size() const noexcept { return pieces_.size() + cut_tokens_.size(); }

 private:
  void add_one(std::string_view text);

  SplitStep pattern_ = SplitStep::gpt2;
  std::shared_ptr<const CutTokens> cut_;  // shared by the counters of all threads
  std::vector<TextPart> parts_;
  WordTable pieces_;  // flushed whenever no call is at work
  std::map<std::string, std::uint64_t, std::less<>> cut_tokens_;
};

}  // namespace trireme
