#pragma once
#include <string_view>

#include "core/files/json.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/openai/chat_request.hpp"

namespace trireme::serve {

/// A request to /v1/responses. It is read as the chat request with the same meaning.
struct ResponseRequest {
  ChatRequest chat;
  Json repeated;  // members of the response that repeat the request: "tools", "temperature", ...
};

/// Reads a whole request. Throws ApiError(400) that names the field, also for unknown fields.
/// Source: OpenAI's API reference, "Create a model response".
ResponseRequest read_response_request(std::string_view json);

/// Converts "instructions" and "input" (a text, or items of type message, function_call,
/// function_call_output and reasoning) to the messages of a chat. Throws ApiError(400).
Json response_messages(const BodyFields& fields);

/// Returns the error with the field names of /v1/responses in place of those of a chat request:
/// "tools[0].name" for "tools[0].function.name".
ApiError with_response_names(const ApiError& error);

}  // namespace trireme::serve
