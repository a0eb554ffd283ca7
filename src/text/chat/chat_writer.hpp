#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/conversation.hpp"
#include "text/chat/jinja_chat.hpp"

namespace trireme::text {

/// Converts conversations to prompts in a chat format. Text of messages stays text; only the format
/// writes special tokens. Immutable and thread-safe.
class ChatWriter {
 public:
  ChatWriter(ChatTemplatePtr format, Tokenizer tokenizer);
  /// Makes a writer for a named format.
  ChatWriter(const ChatTemplate& format, Tokenizer tokenizer);

  [[nodiscard]] const ChatTemplate& format() const noexcept { return *format_; }

  /// `thinking`: none means the default of the format. `asks`: end with the header of the next
  /// answer. `finds_answers`: RenderOptions::finds_answers.
  [[nodiscard]] RenderedChat render(const Conversation& conversation,
                                    std::optional<bool> thinking = std::nullopt, bool asks = true,
                                    bool finds_answers = true) const;
  [[nodiscard]] std::vector<std::uint32_t> encode(const RenderedChat& chat) const;

  /// Returns the text that the format writes after an answer; empty if there is none.
  [[nodiscard]] std::string turn_end_text() const;
  /// Returns the id of this text if it is a token. The model may have other end tokens.
  [[nodiscard]] std::optional<std::uint32_t> turn_end_id() const;
  /// Returns `own`, the end tokens of the model, and turn_end_id if it is below `vocab_size` (rows
  /// of the embedding).
  [[nodiscard]] std::vector<std::uint32_t> end_tokens(std::vector<std::uint32_t> own,
                                                      std::int64_t vocab_size) const;
  /// Returns the texts that end an answer. A format's end text is needed if the tokenizer, or an
  /// embedding with `vocab_size` rows, does not have it as a token: the model then writes it as
  /// ordinary text.
  [[nodiscard]] std::vector<std::string> end_texts(std::int64_t vocab_size) const;

 private:
  ChatTemplatePtr format_;
  ChatEncoder encoder_;
  RenderOptions options_;
};

}  // namespace trireme::text
