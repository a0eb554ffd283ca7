#include "serve/openai/chat_request.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/openai/json_text.hpp"
#include "text/chat/chat_reader.hpp"

namespace trireme {
namespace {

constexpr std::size_t kReaderPadding = 64;  // chat_reader.hpp

Conversation read_conversation(std::string_view json) {
  std::string padded(json);
  padded.append(kReaderPadding, '\0');
  std::vector<Conversation> conversations;
  ChatReader reader(ChatForm::request);
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
    tools.push_back({*name, parameters ? json_text(*schema) : "",
                     function->boolean("strict").value_or(false)});
    // The template writes the whole object; transformers' get_json_schema adds "return".
    for (const char* written : {"description", "return"}) (void)function->find(written);
    function->refuse_unknown();
    tool.refuse_unknown();
  }
  return tools;
}

/// chat_template_kwargs as of vLLM and Qwen, open_thinking as of MiniMind, reasoning_effort as of
/// OpenAI, which knows degrees where we know on and off.
std::optional<bool> read_thinking(const BodyFields& fields) {
  std::optional<bool> thinking;  // the first that is given counts
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

/// Refuses fields of messages that the templates do not write. Messages of answers come back with what
/// an answer has (OpenAI's "annotations"); "type" is what lm-evaluation-harness adds.
void check_message_fields(const Json& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;  // the reader says so
    const BodyFields message(messages[i], formatted("messages[{}].", i));
    for (const char* name : {"role", "content", "name", "tool_calls", "tool_call_id", "tools",
                             "reasoning_content", "function_call", "annotations", "cache_control",
                             "type"})
      (void)message.find(name);
    for (const char* name : {"audio", "refusal"}) {
      if (message.find(name) != nullptr) {
        throw ApiError(400, message.name_of(name) + " is not supported", message.name_of(name),
                       "unsupported_parameter");
      }
    }
    message.refuse_unknown();
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
    fields.refuse("tool_choice", "none, auto, required or a function");
  if (tools.empty()) refuse_field("tool_choice", "tool_choice needs tools");
  request.tool_choice = ToolChoice::required;
  if (!is_named) return;
  const BodyFields choice(*value, "tool_choice.");
  (void)choice.find("type");
  const auto function = choice.object("function");
  choice.refuse_unknown();
  const auto name = function ? function->text("name") : std::nullopt;
  if (!name) refuse_field("tool_choice.function.name", "tool_choice.function.name is missing");
  const auto same = [&](const ToolSpec& tool) { return tool.name == *name; };
  if (std::none_of(tools.begin(), tools.end(), same))
    refuse_field("tool_choice.function.name", formatted("'{}' is none of the tools", *name));
  request.tool_name = *name;
}

/// Reads "messages", "tools" and what decides how they are written. `json`: the whole body.
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
  request.fields.max_tokens = new_name ? new_name : old_name;
  request.logprobs = fields.boolean("logprobs").value_or(false);
  request.top_logprobs = fields.integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0);
  if (request.top_logprobs > 0 && !request.logprobs)
    refuse_field("top_logprobs", "top_logprobs needs logprobs true");
  request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  read_tool_choice(fields, request);
  fields.refuse_unknown();
  if (request.tool_choice == ToolChoice::none) {
    request.input.conversation.tools.clear();
  } else if (request.fields.response_format.kind != ResponseFormat::Kind::text) {
    refuse_field("response_format", "response_format must be text where tools may be called");
  }
  return request;
}

}  // namespace trireme
