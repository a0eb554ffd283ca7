#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "generate/request.hpp"
#include "text/tokenizer.hpp"

/// What a model said of each token, as JSON in the two forms of OpenAI's API. A log-probability that
/// JSON cannot hold (minus infinity) is -9999, as in OpenAI's.
namespace trireme {

/// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null} of a chat.
std::string chat_logprobs(const Tokenizer& tokenizer, std::span<const TokenReport> tokens);

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of a completion, in pieces.
///
/// A token is the text that it decodes to alone: the bytes of a part of a character are U+FFFD.
/// Offsets are in characters of these texts, joined. Of alternatives with the same text, the likelier
/// counts; the token itself is always one of them.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Of the next tokens.
  std::string of(std::span<const TokenReport> tokens);

 private:
  Tokenizer tokenizer_;
  std::int64_t offset_ = 0;
};

}  // namespace trireme
