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

namespace trireme::text {

/// Tokens that are cut out of training texts wherever they occur. Immutable.
class CutTokens {
 public:
  explicit CutTokens(std::vector<std::string> contents);

  /// Appends the parts of `text` in order. The id of a token is its index in contents().
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

/// Counts the words (pre-tokens) that a pattern cuts from training texts. The result does not
/// depend on the order of texts, on threads or on ranks: count separately, then merge.
class WordCounter {
 public:
  WordCounter() = default;  // the pattern of GPT-2

  /// `pattern` must have a regular expression (regex_of). `cut` (may be null): tokens that are cut
  /// out of the texts first. Each occurrence counts as a word of plain characters instead of the
  /// byte alphabet, like tokens that were added to a Hugging Face tokenizer before its training.
  explicit WordCounter(SplitStep pattern, std::shared_ptr<const CutTokens> cut = nullptr)
      : pattern_(pattern), cut_(std::move(cut)) {}

  /// Adds one training text. Throws Error(data) if it is not valid UTF-8.
  void add(std::string_view text);

  /// Adds every line of `text`, including its "\n", as a separate text, like Hugging Face's
  /// train(files). White space at line ends is therefore split differently than by add.
  void add_lines(std::string_view text);

  /// Adds `count` occurrences of a word that was counted elsewhere.
  void add_word(std::string_view word, std::uint64_t count);

  /// Adds `count` occurrences of a token that was cut out elsewhere.
  void add_cut_token(std::string_view token, std::uint64_t count);

  void merge(const WordCounter& other);

  /// Removes all words and keeps the pattern.
  void clear();

  [[nodiscard]] SplitStep pattern() const noexcept { return pattern_; }

  /// Returns the words (raw bytes) with their counts, in the order of WordTable.
  [[nodiscard]] const WordTable& pieces() const noexcept { return pieces_; }

  /// Returns the tokens that were cut out, with their counts.
  [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& cut_tokens()
      const noexcept {
    return cut_tokens_;
  }

  /// Returns the number of distinct words, including cut tokens.
  [[nodiscard]] std::size_t size() const noexcept { return pieces_.size() + cut_tokens_.size(); }

 private:
  void add_one(std::string_view text);

  SplitStep pattern_ = SplitStep::gpt2;
  std::shared_ptr<const CutTokens> cut_;  // shared by the counters of all threads
  std::vector<TextPart> parts_;
  WordTable pieces_;  // always flushed between calls
  std::map<std::string, std::uint64_t, std::less<>> cut_tokens_;
};

}  // namespace trireme::text
