#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "generate/request.hpp"
#include "serve/grammar/byte_grammar.hpp"
#include "serve/grammar/grammar_reader.hpp"
#include "text/tokenizer.hpp"

namespace trireme::serve {

/// The tokens of a vocabulary, sorted by their bytes, so that tokens with a common prefix are
/// checked together. Create it once per tokenizer; it is immutable.
///   memory  32 bytes for each token
class SortedTokens {
 public:
  struct Row {
    std::string_view bytes;
    std::uint32_t id = 0;
    std::uint32_t shared = 0;  // length of the prefix that is shared with the row before
  };

  /// `markers` lists the added tokens that may be used like plain text ("<tool_call>"). Other added
  /// tokens and ids >= `vocab_size` have no row.
  SortedTokens(const text::Tokenizer& tokenizer, std::span<const std::string_view> markers,
               std::int64_t vocab_size);

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }

  [[nodiscard]] std::string_view bytes_of(std::uint32_t id) const {
    return tokenizer_.token_bytes(id);
  }

 private:
  text::Tokenizer tokenizer_;  // owns the bytes of the rows
  std::vector<Row> rows_;
};

struct TextGrammar {
  std::shared_ptr<const ByteGrammar> grammar;
  std::uint32_t start = 0;
};

/// Text before the grammar begins, which the grammar does not restrict. It ends with `until`, which
/// is a part of it.
struct FreeText {
  std::string until;  // for example "</think>", the end of a thought
  // true: the answer may end inside the free text, and then the grammar is not used
  bool may_end = false;
  // If not empty, the free text exists only if it begins with this text after white space.
  std::string begin = {};
};

/// A token mask that keeps answers inside a grammar. It allows a token if the text with this token
/// can still become a text of the grammar. It allows end tokens if the text is complete. The
/// grammar begins after the free texts `before`.
///
/// The mask of a grammar state is computed once, in one pass over the sorted vocabulary. If a
/// prefix is not allowed, the pass skips all tokens with this prefix.
class GrammarMask final : public generate::TokenMask {
 public:
  /// `end_tokens` must not be empty, because a text must be able to end.
  GrammarMask(TextGrammar grammar, std::shared_ptr<const SortedTokens> table,
              std::vector<std::uint32_t> end_tokens, std::vector<FreeText> before = {});

  bool allow(std::span<std::uint64_t> bits, std::int64_t vocab_size) override;
  void accept(std::uint32_t id) override;

 private:
  using Words = std::vector<std::uint64_t>;

  [[nodiscard]] Words words_of(GrammarReader::State state, std::size_t size);
  void read(std::string_view bytes);

  GrammarReader reader_;
  std::shared_ptr<const SortedTokens> table_;
  std::vector<std::uint32_t> end_tokens_;
  std::vector<FreeText> before_;  // the current free text and the later ones
  std::string tail_;              // end of the free text, shorter than its `until`
  GrammarReader::State state_;
  std::unordered_map<GrammarReader::State, Words> known_;
};

}  // namespace trireme::serve
