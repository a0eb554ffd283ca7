#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/openai/generation_fields.hpp"

namespace trireme::serve {

/// A prompt: a text or token ids.
using CompletionPrompt = std::variant<std::string, std::vector<std::uint32_t>>;

/// A request to /v1/completions.
struct CompletionRequest {
  GenerationFields fields;
  std::vector<CompletionPrompt> prompts;  // at least one
  bool echo = false;                      // true: the answer begins with the text of the prompt
  std::optional<std::int64_t> logprobs;   // number of most likely tokens to report at each position
};

/// Maximum number of prompts in a request; each has num_answers answers.
inline constexpr std::size_t kMaxPrompts = 1024;

/// Reads the list of texts and token ids in the field `name`: a string, a list of strings, a list of
/// token ids, or a list of such lists. Throws ApiError(400) for another form or more than `most`
/// entries.
std::vector<CompletionPrompt> read_prompt_list(const BodyFields& fields, const char* name,
                                               std::size_t most);

/// Reads a whole request. Throws ApiError(400) that names the field, also for unknown fields.
/// Source: OpenAI's API reference, "Create completion".
CompletionRequest read_completion_request(std::string_view json);

}  // namespace trireme::serve
