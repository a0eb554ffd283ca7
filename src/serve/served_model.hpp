#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/engine.hpp"
#include "serve/grammar/grammar_mask.hpp"
#include "serve/openai/chat_request.hpp"
#include "text/chat/chat_writer.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// What a server needs to know of its model.
struct ModelFacts {
  std::string name;
  std::string fingerprint;       // of the weights
  std::int64_t created = 0;      // seconds since 1970
  std::int64_t max_context = 0;  // tokens of prompt and answer
  std::int64_t vocab_size = 0;   // rows of the embedding
  std::vector<std::uint32_t> end_tokens;
  const ChatTemplate* chat = nullptr;  // its chat format; null: it has none
};

/// A chat as the model reads it.
struct WrittenChat {
  std::string text;
  std::vector<std::uint32_t> ids;
  bool begins_in_thought = false;  // the answer
};

/// A model with its tokenizer and chat format: how prompts become ids, where answers end, which tokens
/// a form allows. Immutable; for any number of threads.
class ServedModel {
 public:
  /// `source` must outlive this.
  ServedModel(ModelFacts facts, Tokenizer tokenizer, AnswerSource& source);

  [[nodiscard]] const ModelFacts& facts() const noexcept { return facts_; }

  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  [[nodiscard]] AnswerSource& source() const noexcept { return source_; }

  /// Throws ApiError(400, code "no_tokenizer") that names `field` if the model has no tokenizer that
  /// can be read (Tokenizer::ids_only), so that it cannot do what the field asks for.
  void require_tokenizer(const std::string& field) const;

  /// Ids of a text as of a prompt of `trireme generate`: special tokens in it count. ApiError(400) for
  /// one that has none.
  [[nodiscard]] std::vector<std::uint32_t> encode(const std::string& text) const;

  /// A chat in the model's format, in which texts of the request never become structure. `opens_thought`:
  /// where the model thinks, the prompt begins its thought. ApiError(400) if the format has no form for
  /// the tools.
  [[nodiscard]] WrittenChat write(const ChatInput& input, bool opens_thought = false) const;

  /// Those of the model, and what ends a turn in its format.
  [[nodiscard]] const std::vector<std::uint32_t>& chat_end_tokens() const noexcept {
    return chat_end_tokens_;
  }

  /// Returns the texts that end a turn where no token does (ChatWriter::end_texts).
  [[nodiscard]] const std::vector<std::string>& chat_end_texts() const noexcept {
    return chat_end_texts_;
  }

  /// Whether markers of thoughts and calls would be left out of texts with other special tokens.
  [[nodiscard]] bool has_special_markers() const noexcept { return has_special_markers_; }

  [[nodiscard]] const std::shared_ptr<const SortedTokens>& sorted_tokens() const noexcept {
    return sorted_tokens_;
  }

 private:
  ModelFacts facts_;
  Tokenizer tokenizer_;
  AnswerSource& source_;
  std::optional<ChatWriter> writer_;
  std::vector<std::uint32_t> chat_end_tokens_;
  std::vector<std::string> chat_end_texts_;
  bool has_special_markers_ = false;
  std::shared_ptr<const SortedTokens> sorted_tokens_;
};

}  // namespace trireme
