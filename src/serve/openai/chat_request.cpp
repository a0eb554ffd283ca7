#include "serve/openai/chat_request.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "serve/openai/api_error.hpp"
#include "text/chat/chat_reader.hpp"

namespace trireme::serve {
namespace {

constexpr std::size_t kReaderPadding = 64;  // chat_reader.hpp

text::Conversation read_conversation(std::string_view json) {
  std::string padded(json);
  padded.append(kReaderPadding, '\0');
  std::vector<text::Conversation> conversations;
  text::ChatReader reader(text::ChatForm::request);
  if (const auto problem = reader.read(padded.data(), json.size(), conversations))
    refuse_field("messages", problem->reason);
  return std::move(conversations.front());
}

bool is_tool_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), fits);
}

std::vector<ToolSpec> read_tools(const BodyFields& fields) {
  std::vector<ToolSpec> tools;
  const Json* list = fields.find("tools");
  if (list == nullptr) return tools;
  if (!list->is_array()) fields.refuse("tools", "a list");
  for (const Json& each : *list) {
    const std::string where = formatted("tools[{}]", tools.size());
    if (!each.is_object()) refuse_field(where, where + " must be an object");
    const BodyFields tool(each, where + ".");
    if (tool.text("type").value_or("function") != "function") tool.refuse("type", "function");
    const auto function = tool.object("function");
    if (!function) tool.refuse("function", "an object");
    const auto name = function->text("name");
    if (!name || !is_tool_name(*name))
      function->refuse("name", "1 to 64 letters, digits, '_', '-' or '.'");
    const auto parameters = function->object("parameters");
    const Json* schema = function->find("parameters");
    tools.push_back(
        {*name, parameters ? json_text(*schema) : "", function->boolean("strict").value_or(false)});
    // The template writes the whole function object. Accept "return", because get_json_schema of
    // transformers adds it.
    for (const char* written : {"description", "return"}) (void)function->find(written);
    function->refuse_unknown();
    tool.refuse_unknown();
  }
  return tools;
}

/// Reads the thinking switch: chat_template_kwargs as in vLLM and Qwen, open_thinking as in
/// MiniMind, or reasoning_effort as in OpenAI's API (any effort except "none" means on).
std::optional<bool> read_thinking(const BodyFields& fields) {
  std::optional<bool> thinking;  // the first field that is present counts
  const auto take = [&](std::optional<bool> given) {
    if (!thinking) thinking = given;
  };
  if (const auto kwargs = fields.object("chat_template_kwargs")) {
    for (const char* name : {"enable_thinking", "open_thinking"}) take(kwargs->boolean(name));
    kwargs->refuse_unknown();
  }
  take(fields.boolean("open_thinking"));
  if (const auto effort = fields.text("reasoning_effort")) {
    constexpr std::array kDegrees{"minimal", "low", "medium", "high", "xhigh"};
    const bool is_degree = std::find(kDegrees.begin(), kDegrees.end(), *effort) != kDegrees.end();
    if (!is_degree && *effort != "none")
      fields.refuse("reasoning_effort", "none, minimal, low, medium, high or xhigh");
    take(is_degree);
  }
  return thinking;
}

/// Refuses unknown fields in the parts of a message's content. `prefix` is the path of the message,
/// for example "messages[0].". "cache_control" is ignored: it only controls the cache of a service.
void check_part_fields(const Json& content, const std::string& prefix) {
  for (std::size_t i = 0; content.is_array() && i < content.size(); ++i) {
    const BodyFields part(content[i], formatted("{}content[{}].", prefix, i));
    for (const char* name : {"type", "text", "cache_control"}) (void)part.find(name);
    part.refuse_unknown();
  }
}

void check_function_fields(const BodyFields& function) {
  for (const char* name : {"name", "arguments"}) (void)function.find(name);
  function.refuse_unknown();
}

/// Refuses unknown fields in tool calls of earlier answers. Accepts "index", because clients that
/// collect a stream send it back. Also accepts a call with "name" and "arguments" but without the
/// surrounding "function".
void check_call_fields(const Json& calls, const std::string& prefix) {
  for (std::size_t i = 0; calls.is_array() && i < calls.size(); ++i) {
    const BodyFields call(calls[i], formatted("{}tool_calls[{}].", prefix, i));
    for (const char* name : {"id", "index"}) (void)call.find(name);
    if (call.text("type").value_or("function") != "function") call.refuse("type", "function");
    const auto function = call.object("function");
    if (function) {
      check_function_fields(*function);
      call.refuse_unknown();
    } else {
      check_function_fields(call);
    }
  }
}

/// Refuses calls in messages of other roles, because only the assistant makes calls.
void check_calls(const BodyFields& message, const std::string& prefix) {
  const Json* calls = message.find("tool_calls");
  const Json* legacy = message.find("function_call");
  const bool has_calls = (calls != nullptr && !calls->empty()) || legacy != nullptr;
  if (has_calls && message.text("role").value_or("") != "assistant") {
    const std::string name = message.name_of(legacy != nullptr ? "function_call" : "tool_calls");
    refuse_field(name, name + " is allowed only in a message of role assistant");
  }
  if (calls != nullptr) check_call_fields(*calls, prefix);
  if (const auto call = message.object("function_call")) check_function_fields(*call);
}

/// Refuses fields of messages that no chat template uses. Exceptions: "annotations", which OpenAI's
/// answers contain, and "type", which lm-evaluation-harness adds, are accepted and ignored.
void check_message_fields(const Json& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;  // the reader reports this error
    const std::string prefix = formatted("messages[{}].", i);
    const BodyFields message(messages[i], prefix);
    for (const char* name :
         {"role", "content", "name", "tool_calls", "tool_call_id", "tools", "reasoning_content",
          "function_call", "annotations", "cache_control", "type"})
      (void)message.find(name);
    for (const char* name : {"audio", "refusal"}) {
      if (message.find(name) != nullptr) {
        throw ApiError(400, message.name_of(name) + " is not supported", message.name_of(name),
                       "unsupported_parameter");
      }
    }
    message.refuse_unknown();
    if (const Json* content = message.find("content")) check_part_fields(*content, prefix);
    check_calls(message, prefix);
  }
}

void read_tool_choice(const BodyFields& fields, ChatRequest& request) {
  const Json* value = fields.find("tool_choice");
  const std::vector<ToolSpec>& tools = request.input.tools;
  if (value == nullptr || *value == "auto") {
    request.tool_choice = tools.empty() ? ToolChoice::none : ToolChoice::automatic;
    return;
  }
  if (*value == "none") return;
  const bool is_named = value->is_object() && value->value("type", Json()) == "function";
  if (*value != "required" && !is_named)
    fields.refuse("tool_choice", "none, auto, required or an object that names a function");
  if (tools.empty())
    refuse_field("tool_choice", "tool_choice requires tools, but the request has none");
  request.tool_choice = ToolChoice::required;
  if (!is_named) return;
  const BodyFields choice(*value, "tool_choice.");
  (void)choice.find("type");
  const auto function = choice.object("function");
  choice.refuse_unknown();
  const auto name = function ? function->text("name") : std::nullopt;
  if (!name) refuse_field("tool_choice.function.name", "tool_choice.function.name is missing");
  function->refuse_unknown();
  const auto same = [&](const ToolSpec& tool) { return tool.name == *name; };
  if (std::none_of(tools.begin(), tools.end(), same))
    refuse_field("tool_choice.function.name",
                 formatted("'{}' is not the name of a tool in tools", *name));
  request.tool_name = *name;
}

/// Reads "messages", "tools" and the settings of the template. `json` is the whole body.
ChatInput read_chat_input(const BodyFields& fields, std::string_view json) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array()) fields.refuse("messages", "a list of messages");
  if (messages->empty())
    refuse_field("messages", "messages is an empty list, must hold at least one message");
  ChatInput input;
  input.tools = read_tools(fields);
  input.conversation = read_conversation(json);
  check_message_fields(*messages);
  input.thinking = read_thinking(fields);
  input.generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  return input;
}

}  // namespace

ChatRequest read_chat_request(std::string_view json) {
  const Json body = parse_body(json);
  const BodyFields fields(body);
  ChatRequest request;
  request.fields = read_generation_fields(fields);
  request.input = read_chat_input(fields, json);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto old_name = fields.integer("max_tokens", 1, kMost);
  const auto new_name = fields.integer("max_completion_tokens", 1, kMost);
  if (old_name && new_name && *old_name != *new_name) {
    refuse_field(
        "max_tokens",
        formatted("max_tokens is {} and max_completion_tokens is {}. Send only one of them.",
                  *old_name, *new_name));
  }
  request.fields.max_tokens = new_name ? new_name : old_name;
  request.logprobs = fields.boolean("logprobs").value_or(false);
  request.top_logprobs = fields.integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0);
  if (request.top_logprobs > 0 && !request.logprobs)
    refuse_field("top_logprobs", "top_logprobs requires logprobs to be true");
  request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  read_tool_choice(fields, request);
  fields.refuse_unknown();
  if (request.tool_choice == ToolChoice::none) {
    request.input.conversation.tools.clear();
  } else if (request.fields.response_format.kind != ResponseFormat::Kind::text) {
    refuse_field("response_format", "response_format must be text if the model may call tools");
  }
  return request;
}

}  // namespace trireme::serve
