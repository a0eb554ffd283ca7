#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme {

/// An added token (id) with the white space it took along, or the text between two of them. The
/// texts of all parts, joined, are the text.
struct TextPart {
  std::string_view text;
  std::optional<std::uint32_t> id;
};

/// Parts of a text in order, and the texts of those that normalization changed.
struct TextParts {
  std::vector<TextPart> list;
  std::deque<std::string> normalized;  // a deque: views into its strings stay valid

  void clear() {
    list.clear();
    normalized.clear();
  }
};

/// Cuts added tokens out of text: leftmost, then longest, in two rounds, with the flags
/// single_word, lstrip and rstrip. First those with normalized = false; what is left becomes NFC if
/// `nfc`, and there the others are looked for, by their own NFC. Immutable after construction; safe
/// for any number of threads. Source: huggingface/tokenizers 0.23, `added_vocabulary.rs`.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool nfc = false);

  /// Appends the parts of `text` (valid UTF-8) in order; `match` = false:
  /// it is one part, and only normalized.
  void split(std::string_view text, bool match, TextParts& parts) const;

 private:
  struct Node {
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t token = -1;  // index into tokens_ of the token that ends here
    char byte = 0;
  };

  /// One set of tokens as a trie over bytes.
  struct Trie {
    std::vector<Node> nodes;
    // node of each first byte, -1 if no token begins with it
    std::array<std::int32_t, 256> roots{};
    char only_first = 0;  // set if all tokens begin with the same byte
    std::int32_t num_first = 0;
  };

  void insert(Trie& trie, std::int32_t token);
  [[nodiscard]] std::int32_t longest_at(const Trie& trie, std::string_view text) const;
  [[nodiscard]] static std::size_t next_start(const Trie& trie, std::string_view text,
                                              std::size_t from);
  void split_by(const Trie& trie, std::string_view text, std::vector<TextPart>& parts) const;

  void split_normalized(std::string_view text, bool match, TextParts& parts) const;

  std::vector<AddedToken> tokens_;  // content as it is looked for
  bool nfc_;
  Trie raw_;
  Trie normalized_;
};

}  // namespace trireme
