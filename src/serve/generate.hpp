#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "model/transformer.hpp"
#include "serve/sampling.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

struct GenerateOptions {
  std::int64_t max_tokens = 128;
  SamplingConfig sampling;
};

/// Continues `prompt` (of encode_prompt) until one of `end_tokens`, `max_tokens` or the model's
/// longest position. `on_token` sees each new token as it is drawn. Returns the new tokens, without
/// the one that ended it.
std::vector<std::uint32_t> generate(Transformer& model, const std::vector<std::uint32_t>& prompt,
                                    std::span<const std::uint32_t> end_tokens,
                                    const GenerateOptions& options,
                                    const std::function<void(std::uint32_t)>& on_token);

/// The ids that `transformers` gives for the prompt: special tokens in the text count, and the
/// tokenizer's post-processor puts its own around it. A prompt without any becomes the
/// beginning-of-text token, with which `transformers` starts when it is given none. Throws
/// Error(usage) for a prompt that is empty then, or does not fit a model of `max_seq_len`.
std::vector<std::uint32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt,
                                         std::int64_t max_seq_len);

}  // namespace trireme
