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
#include "text/chat/jinja_chat.hpp"
#include "text/tokenizer.hpp"

namespace trireme::serve {
struct ModelProperties {
  std::string name;
  std::string fingerprint;       // hash of the weights
  std::int64_t created = 0;      // seconds since 1970
  std::int64_t max_context = 0;  // maximum number of prompt and answer tokens
  std::int64_t vocab_size = 0;   // rows of the embedding
  std::vector<std::uint32_t> end_tokens;
  text::ChatTemplatePtr chat = nullptr;  // chat format; null if it has none
};

/// A chat that was converted to a prompt of the model.
struct RenderedPrompt {
  std::string text;
  std::vector<std::uint32_t> ids;
  bool begins_in_thought = false;  // the answer begins inside a thought
};

/// A model with its tokenizer and chat format. It converts prompts to ids, and provides the end
/// tokens and the sorted tokens for grammars. Immutable and thread-safe.
class ServedModel {
 public:
  /// `source` must outlive this object.
  ServedModel(ModelProperties facts, text::Tokenizer tokenizer, generate::AnswerSource& source);

  [[nodiscard]] const ModelProperties& facts() const noexcept { return facts_; }

  [[nodiscard]] const text::Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  [[nodiscard]] generate::AnswerSource& source() const noexcept { return source_; }

  /// Throws ApiError(400, code "no_tokenizer") that names `field` if the model has no readable
  /// tokenizer (Tokenizer::ids_only).
  void require_tokenizer(const std::string& field) const;

  /// Returns the ids of a prompt. Special tokens in the text are recognized, as in `trireme
  /// generate`. Throws ApiError(400) that names `field` if the prompt has no tokens.
  [[nodiscard]] std::vector<std::uint32_t> encode(const std::string& text,
                                                  const std::string& field = "prompt") const;

  /// Writes a chat in the chat format of the model. Texts of the request never become special
  /// tokens. If `opens_thought` is true and the model thinks, the prompt ends with the opening
  /// marker of a thought. Throws ApiError(400) if the format does not support the tools.
  [[nodiscard]] RenderedPrompt write(const ChatInput& input, bool opens_thought = false) const;

  /// Returns the end tokens of the model and the tokens that end a turn in its chat format.
  [[nodiscard]] const std::vector<std::uint32_t>& chat_end_tokens() const noexcept {
    return chat_end_tokens_;
  }

  /// Returns the texts that end a turn in chat formats without an end token
  /// (ChatWriter::end_texts).
  [[nodiscard]] const std::vector<std::string>& chat_end_texts() const noexcept {
    return chat_end_texts_;
  }

  /// Returns true if the markers of thoughts and calls are special tokens, which decoding would
  /// leave out.
  [[nodiscard]] bool has_special_markers() const noexcept { return has_special_markers_; }

  [[nodiscard]] const std::shared_ptr<const SortedTokens>& sorted_tokens() const noexcept {
    return sorted_tokens_;
  }

 private:
  ModelProperties facts_;
  text::Tokenizer tokenizer_;
  generate::AnswerSource& source_;
  std::optional<text::ChatWriter> writer_;
  std::vector<std::uint32_t> chat_end_tokens_;
  std::vector<std::string> chat_end_texts_;
  bool has_special_markers_ = false;
  std::shared_ptr<const SortedTokens> sorted_tokens_;
};

}  // namespace trireme::serve
