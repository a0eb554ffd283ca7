#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/normalizer.hpp"
#include "text/spec/tokenizer_spec.hpp"

namespace trireme::text {

/// Either an added token (with id) and the white space that it includes, or the text between two
/// added tokens. The concatenated parts are the whole text.
struct TextPart {
  std::string_view text;
  std::optional<std::uint32_t> id;
  bool begins_text = false;  // the part is at the start of the whole text
};

/// The parts of a text in order, and storage for parts that normalization changed.
struct TextParts {
  std::vector<TextPart> list;
  std::deque<std::string> normalized;  // a deque, so that views into its strings stay valid

  void clear() {
    list.clear();
    normalized.clear();
  }
};

/// Splits a text at added tokens: leftmost match first, then longest, with the flags single_word,
/// lstrip and rstrip. The first pass finds tokens with normalized = false. The second pass
/// normalizes the remaining text and finds the other tokens by their normalized content.
/// Immutable after construction and thread-safe. Source: huggingface/tokenizers 0.23,
/// `added_vocabulary.rs`.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens, Normalizer normalizer = {});

  /// Appends the parts of `text` (valid UTF-8) in order. If `match` is false, the result is one
  /// part, which is only normalized.
  void split(std::string_view text, bool match, TextParts& parts) const;

 private:
  struct Node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t token = -1;  // index in tokens_ of the token that ends here; -1: none
    char byte = 0;
  };

  /// Tokens as a trie over bytes.
  struct Trie {
    std::vector<Node> nodes;
    // node for each first byte; -1: no token begins with it
    std::array<std::int32_t, 256> roots{};
    char only_first = 0;  // the first byte if all tokens begin with the same one
    std::int32_t num_first = 0;
  };

  void insert(Trie& trie, std::int32_t token);
  [[nodiscard]] std::int32_t longest_at(const Trie& trie, std::string_view text) const;
  [[nodiscard]] static std::size_t next_start(const Trie& trie, std::string_view text,
                                              std::size_t from);
  void split_by(const Trie& trie, std::string_view text, std::vector<TextPart>& parts) const;

  void split_normalized(std::string_view text, bool match, bool begins_text,
                        TextParts& parts) const;

  std::vector<AddedToken> tokens_;  // the contents of normalized tokens are normalized
  Normalizer normalizer_;
  Trie raw_;
  Trie normalized_;
};

}  // namespace trireme::text
