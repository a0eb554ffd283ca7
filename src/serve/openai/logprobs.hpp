#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "generate/request.hpp"
#include "text/tokenizer.hpp"

/// Writes log-probabilities as JSON, in the two forms of OpenAI's API. Minus infinity, which JSON
/// cannot represent, becomes -9999 as in OpenAI's API.
namespace trireme::serve {

/// Returns the log-probabilities of a chat: {"content": [{"token", "logprob", "bytes",
/// "top_logprobs"}], "refusal": null}.
std::string chat_logprobs(const text::Tokenizer& tokenizer,
                          std::span<const generate::TokenReport> tokens);

/// Writes the log-probabilities of a completion, part by part: {"tokens", "token_logprobs",
/// "top_logprobs", "text_offset"}.
///
/// Each token is decoded separately; an incomplete character becomes U+FFFD. Offsets count the
/// characters of these texts. If several alternatives have the same text, the most likely one is
/// reported. The token itself is always one of the alternatives.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Returns the log-probabilities of the next tokens.
  std::string of(std::span<const generate::TokenReport> tokens);

 private:
  text::Tokenizer tokenizer_;
  std::int64_t offset_ = 0;
};

}  // namespace trireme::serve
