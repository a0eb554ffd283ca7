#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/generation_fields.hpp"
#include "text/chat/conversation.hpp"

namespace trireme {

/// A function that the model may ask its user to call.
struct ToolSpec {
  std::string name;
  std::string parameters;  // JSON schema of the arguments; "" for any object
  bool is_strict = false;  // the arguments of a call must fit the schema
};

enum class ToolChoice {
  none,  // answers are text, and the model does not see the tools
  automatic,
  required,  // at least one call; if `tool_name` is set, one call of it
};

/// Messages and tools as a template writes them.
struct ChatInput {
  Conversation conversation;
  std::vector<ToolSpec> tools;
  std::optional<bool> thinking;  // none: the template's default
  bool generation_prompt = true;
};

/// A request to /v1/chat/completions.
struct ChatRequest {
  GenerationFields fields;
  ChatInput input;
  ToolChoice tool_choice = ToolChoice::none;
  std::string tool_name;  // of a named choice
  bool parallel_tool_calls = true;
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
};

/// Reads a whole request. Throws ApiError(400) that names the field, also for one that is not known,
/// of the request or of a message. Source: OpenAI's API reference, "Create chat completion"; chat_template_kwargs as in vLLM.
ChatRequest read_chat_request(std::string_view json);

}  // namespace trireme
