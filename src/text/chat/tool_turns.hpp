#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_writer.hpp"

namespace trireme::text {

/// Writes the tokens between an answer that calls tools and the next answer: the results of the
/// tools and the header of the next answer. The tokens of a conversation are only appended, and
/// earlier turns are never rendered again.
///
/// The text comes from the template: it renders a question, an answer with a call, and the results.
/// The text after the end token of the answer is the text to append. Immutable and thread-safe.
class ToolTurns {
 public:
  /// Throws Error(usage) with the reason if the format has no such text:
  ///   - the end token of an answer is not a token of the tokenizer;
  ///   - the template does not write the results of tools;
  ///   - the conversation up to an answer is not the beginning of the conversation with the results;
  ///   - the text after an answer depends on earlier turns.
  explicit ToolTurns(ChatWriter writer);

  /// Returns the tokens after the end token of an answer. Text of a result never becomes an added
  /// token. `thinking`: RenderOptions::thinking of the next answer.
  [[nodiscard]] std::vector<std::uint32_t> results(std::span<const std::string> results,
                                                   std::optional<bool> thinking) const;

  /// Returns the RenderOptions::thinking with which the text of a prompt was rendered, from the
  /// header at its end. Throws Error(data) if it does not end with the header of an answer.
  [[nodiscard]] std::optional<bool> thinking_of(std::string_view prompt) const;

 private:
  struct Header {
    std::optional<bool> thinking;
    std::string text;
  };

  /// Returns the text from the end token of the last of `rounds` answers to the header of the next
  /// answer; nullopt if the results change the text before them or the answer has no end token.
  [[nodiscard]] std::optional<RenderedChat> after_answer(std::size_t rounds,
                                                         std::span<const std::string> results,
                                                         std::optional<bool> thinking) const;
  /// Returns the reason why the format cannot append; "" if it can.
  [[nodiscard]] std::string find_reason() const;

  ChatWriter writer_;
  std::uint32_t end_ = 0;        // end token of an answer
  bool has_thought_ = false;     // the answer that is rendered has a thought
  std::vector<Header> headers_;  // headers of an answer after a question, longest first
};

}  // namespace trireme::text
