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

namespace trireme {

/// The tokens of a vocabulary in the order of their bytes, so that all with the same beginning are
/// looked at once. Made once for a tokenizer; immutable.
///   memory  32 bytes a token
class SortedTokens {
 public:
  struct Row {
    std::string_view bytes;
    std::uint32_t id = 0;
    std::uint32_t shared = 0;  // bytes that it begins with like the row before
  };

  /// `markers`: added tokens that count as the text that they are ("<tool_call>"). All others, and ids
  /// of `vocab_size` and above, are in no row.
  SortedTokens(const Tokenizer& tokenizer, std::span<const std::string_view> markers,
               std::int64_t vocab_size);

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }

  [[nodiscard]] std::string_view bytes_of(std::uint32_t id) const {
    return tokenizer_.token_bytes(id);
  }

 private:
  Tokenizer tokenizer_;  // whose bytes the rows show
  std::vector<Row> rows_;
};

/// A grammar and the rule that whole texts are.
struct TextGrammar {
  std::shared_ptr<const ByteGrammar> grammar;
  std::uint32_t start = 0;
};

/// Free text before a grammar: it goes on until these words, which belong to it.
struct FreeText {
  std::string until;     // "</think>": the end of a thought
  bool may_end = false;  // the answer may end in it, and then has no part of the grammar
};

/// Answers that are texts of a grammar: of all tokens, those may follow with which the text can still
/// become one, and end tokens where it may end. The grammar begins after the free texts `before`.
///
/// What may follow is computed once for each state of the grammar: one pass over the vocabulary, in
/// which a beginning that leads nowhere is tried once for all tokens with it.
class GrammarMask final : public TokenMask {
 public:
  /// `end_tokens` must not be empty: a text must be able to end.
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
  std::vector<FreeText> before_;  // the one that goes on, and those after it
  std::string tail_;              // of the free text, shorter than its `until`
  GrammarReader::State state_;
  std::unordered_map<GrammarReader::State, Words> known_;
};

}  // namespace trireme
