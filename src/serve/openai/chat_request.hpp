#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/generation_fields.hpp"
#include "text/chat/conversation.hpp"

namespace trireme::serve {
struct ToolSpec {
  std::string name;
  std::string parameters;  // JSON schema of the arguments; empty for any object
  bool is_strict = false;  // the arguments of a call must match the schema
};

enum class ToolChoice {
  none,  // answers are text, and the prompt does not contain the tools
  automatic,
  required,  // at least one call; if `tool_name` is set, exactly one call of this tool
};

/// The input of the chat template: messages, tools and settings.
struct ChatInput {
  text::Conversation conversation;
  std::vector<ToolSpec> tools;
  std::optional<bool> thinking;  // not set: the default of the template
  bool generation_prompt = true;
};

/// A request to /v1/chat/completions.
struct ChatRequest {
  GenerationFields fields;
  ChatInput input;
  ToolChoice tool_choice = ToolChoice::none;
  std::string tool_name;  // set if tool_choice names a function
  bool parallel_tool_calls = true;
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
};

/// Reads a whole request. Throws ApiError(400) that names the field, also for unknown fields of the
/// request or of a message. Source: OpenAI's API reference, "Create chat completion"; vLLM for
/// chat_template_kwargs.
ChatRequest read_chat_request(std::string_view json);

}  // namespace trireme::serve
