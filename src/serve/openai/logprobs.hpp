#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "generate/request.hpp"
#include "text/tokenizer.hpp"

/// Log-probabilities as JSON in the two forms of OpenAI's API. Minus infinity, which JSON cannot
/// represent, becomes -9999 as in OpenAI's API.
namespace trireme::serve {

/// Returns the log-probabilities of a chat: {"content": [{"token", "logprob", "bytes",
/// "top_logprobs"}], "refusal": null}.
std::string chat_logprobs(const text::Tokenizer& tokenizer,
                          std::span<const generate::TokenReport> tokens);

/// Writes the log-probabilities of a completion, part by part: {"tokens", "token_logprobs",
/// "top_logprobs", "text_offset"}.
///
/// The text of a token is its own decoding; an incomplete character becomes U+FFFD. Offsets count
/// characters of these texts. If alternatives have the same text, the most likely one counts. The
/// token itself is always among the alternatives.
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
