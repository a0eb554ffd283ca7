#pragma once
#include <cstdint>
#include <functional>
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

/// Continues `prompt` (token ids, not empty) until the end-of-text token, `max_tokens` or the
/// model's longest position. `on_token` sees each new token as it is drawn. Returns the new tokens,
/// without the end-of-text one. Throws Error(usage) if the prompt does not fit the model.
std::vector<std::uint32_t> generate(Transformer& model,
                                    const std::vector<std::uint32_t>& prompt,
                                    std::optional<std::uint32_t> end_token,
                                    const GenerateOptions& options,
                                    const std::function<void(std::uint32_t)>& on_token);

/// A prompt as a pretrained model has seen text start: the beginning-of-text token, if there is
/// one, and the text.
std::vector<std::uint32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt);

}  // namespace trireme
