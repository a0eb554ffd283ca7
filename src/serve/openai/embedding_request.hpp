#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/completion_request.hpp"

namespace trireme::serve {

/// A request to /v1/embeddings.
struct EmbeddingRequest {
  std::string model;                     // empty: the served model
  std::vector<CompletionPrompt> inputs;  // at least one
  bool is_base64 = false;                // false: lists of numbers
};

/// Maximum number of inputs in a request. Source: OpenAI's API reference, "Create embeddings".
inline constexpr std::size_t kMaxEmbeddingInputs = 2048;

/// Reads a whole request. Throws ApiError(400) that names the field, also for unknown fields.
EmbeddingRequest read_embedding_request(std::string_view json);

/// Returns the response body. `vectors` are in the order of the inputs.
std::string embedding_reply(const EmbeddingRequest& request, const std::string& model,
                            const std::vector<std::vector<float>>& vectors,
                            std::int64_t prompt_tokens);

/// Scales a vector to length 1. A vector of zeros stays unchanged.
void scale_to_unit_length(std::vector<float>& vector);

/// Returns the values as base64 of their bytes (32-bit floats, little-endian). Source: RFC 4648,
/// section 4.
std::string base64_of(const std::vector<float>& values);

}  // namespace trireme::serve
