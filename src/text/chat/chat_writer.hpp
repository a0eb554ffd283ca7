#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/conversation.hpp"

namespace trireme {

/// Conversations as prompts in a chat format: closed with what asks the model for its turn. What a
/// message says is text; only what the format writes becomes structure. Immutable; for any number of
/// threads.
class ChatWriter {
 public:
  ChatWriter(const ChatTemplate& format, Tokenizer tokenizer);

  [[nodiscard]] const ChatTemplate& format() const noexcept { return *format_; }

  /// `thinking`: none: the format's default. `asks`: whether the model's turn is announced.
  [[nodiscard]] RenderedChat render(const Conversation& conversation,
                                    std::optional<bool> thinking = std::nullopt,
                                    bool asks = true) const;
  [[nodiscard]] std::vector<std::uint32_t> encode(const RenderedChat& chat) const;

  /// Returns the text that the format writes at the end of an answer; "" if it writes none.
  [[nodiscard]] std::string turn_end_text() const;
  /// The token that ends an answer, if it is one: beside the model's own end tokens, which may be
  /// others.
  [[nodiscard]] std::optional<std::uint32_t> turn_end_id() const;
  /// `own`, those of the model, and the one of turn_end_id if it is another below `vocab_size`: the
  /// rows of its embedding.
  [[nodiscard]] std::vector<std::uint32_t> end_tokens(std::vector<std::uint32_t> own,
                                                      std::int64_t vocab_size) const;
  /// Returns the texts at which an answer ends because no token of a model with `vocab_size` rows of
  /// embedding ends it: the format's end text, if the tokenizer does not have it as a token. A model
  /// that was trained so writes it as ordinary text.
  [[nodiscard]] std::vector<std::string> end_texts(std::int64_t vocab_size) const;

 private:
  const ChatTemplate* format_;
  ChatEncoder encoder_;
  RenderOptions options_;
};

}  // namespace trireme
