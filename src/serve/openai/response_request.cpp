#include "serve/openai/response_request.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"

namespace trireme::serve {
namespace {

/// Fields that this server does not support, each with the values that change nothing.
const Json& unsupported_response_fields() {
  static const Json table = Json::parse(R"({
    "background": [false], "context_management": [], "conversation": [], "include": [[]],
    "max_tool_calls": [], "moderation": [], "previous_response_id": [], "prompt": [],
    "service_tier": ["auto", "default"], "store": [false], "top_logprobs": [0],
    "truncation": ["disabled"]})");
  return table;
}

void refuse_unsupported_response_fields(const BodyFields& fields) {
  for (const auto& [name, neutral] : unsupported_response_fields().items()) {
    const Json* value = fields.find(name);
    if (value == nullptr || std::find(neutral.begin(), neutral.end(), *value) != neutral.end())
      continue;
    throw ApiError(400, formatted("{} is not supported", name), name, "unsupported_parameter");
  }
  // These fields never change an answer.
  for (const char* name :
       {"metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"})
    (void)fields.find(name);
  if (const auto options = fields.object("stream_options")) {
    (void)options->boolean("include_obfuscation");  // ignored: it only adds padding to events
    options->refuse_unknown();
  }
}

/// Returns the tools in the form of a chat request, which has an object "function".
Json chat_tools(const BodyFields& fields) {
  Json tools = Json::array();
  const Json* list = fields.find("tools");
  if (list == nullptr) return tools;
  if (!list->is_array()) fields.refuse("tools", "a list");
  for (const Json& each : *list) {
    const std::string where = formatted("tools[{}]", tools.size());
    if (!each.is_object()) refuse_field(where, where + " must be an object");
    const BodyFields tool(each, where + ".");
    if (tool.text("type") != "function") tool.refuse("type", "function");
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (const Json* value = tool.find(name)) function[name] = *value;
    }
    tool.refuse_unknown();
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

Json chat_tool_choice(const BodyFields& fields) {
  const Json* value = fields.find("tool_choice");
  if (value == nullptr) return "auto";
  if (value->is_string()) return *value;
  const auto choice = fields.object("tool_choice");
  if (choice->text("type") != "function") choice->refuse("type", "function");
  const auto name = choice->text("name");
  if (!name) choice->refuse("name", "the name of a function");
  choice->refuse_unknown();
  return {{"type", "function"}, {"function", {{"name", *name}}}};
}

/// Returns the response_format of the chat request that has the same meaning as "text".
Json chat_format(const BodyFields& fields) {
  const auto text = fields.object("text");
  const auto format = text ? text->object("format") : std::nullopt;
  if (text) {
    if (text->text("verbosity").value_or("medium") != "medium") text->refuse("verbosity", "medium");
    text->refuse_unknown();
  }
  if (!format) return {{"type", "text"}};
  const auto type = format->text("type");
  if (type != "text" && type != "json_object" && type != "json_schema")
    format->refuse("type", "text, json_object or json_schema");
  Json chat{{"type", *type}};
  if (type == "json_schema") {
    const Json* schema = format->find("schema");
    if (schema == nullptr || !schema->is_object()) format->refuse("schema", "a JSON schema");
    (void)format->text("name");
    (void)format->text("description");
    (void)format->boolean("strict");  // ignored: answers always match a schema
    chat["json_schema"] = {{"schema", *schema}};
  }
  format->refuse_unknown();
  return chat;
}

std::optional<std::string> read_effort(const BodyFields& fields) {
  const auto reasoning = fields.object("reasoning");
  if (!reasoning) return std::nullopt;
  const auto effort = reasoning->text("effort");
  for (const char* name : {"summary", "generate_summary"}) {
    if (reasoning->find(name) != nullptr)
      throw ApiError(400, reasoning->name_of(name) + " is not supported", reasoning->name_of(name),
                     "unsupported_parameter");
  }
  reasoning->refuse_unknown();
  return effort;
}

/// Returns the members of the response that repeat the request.
Json repeated_fields(const BodyFields& fields, const ChatRequest& chat) {
  const auto given = [&](const char* name, Json absent) {
    const Json* value = fields.find(name);
    return value == nullptr ? std::move(absent) : *value;
  };
  const Json* text = fields.find("text");
  Json format = text == nullptr ? Json() : text->value("format", Json());
  if (format.is_null()) format = {{"type", "text"}};
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", chat.parallel_tool_calls},
          {"previous_response_id", nullptr},
          {"reasoning", given("reasoning", Json::object())},
          {"store", false},
          {"temperature", given("temperature", chat.fields.sampling.temperature)},
          {"text", {{"format", std::move(format)}}},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", Json::array())},
          {"top_p", given("top_p", chat.fields.sampling.top_p)},
          {"truncation", "disabled"}};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

ApiError with_response_names(const ApiError& error) {
  std::string param = error.param();
  std::string message = error.what();
  if (param.starts_with("messages")) {  // the positions of messages and items differ
    return ApiError(error.status(), "input: " + message, "input", error.code());
  }
  for (std::string* text : {&param, &message}) {
    replace_all(*text, "tool_choice.function", "tool_choice");
    if (param.starts_with("tools[")) replace_all(*text, "].function", "]");
    replace_all(*text, "response_format.json_schema", "text.format");
    replace_all(*text, "response_format", "text.format");
    replace_all(*text, "reasoning_effort", "reasoning.effort");
    replace_all(*text, "max_completion_tokens", "max_output_tokens");
  }
  return ApiError(error.status(), message, param, error.code());
}

ResponseRequest read_response_request(std::string_view json) {
  const Json body = parse_body(json);
  const BodyFields fields(body);
  refuse_unsupported_response_fields(fields);
  Json chat{{"messages", response_messages(fields)},
            {"tools", chat_tools(fields)},
            {"tool_choice", chat_tool_choice(fields)},
            {"response_format", chat_format(fields)}};
  if (const auto effort = read_effort(fields)) chat["reasoning_effort"] = *effort;
  if (const auto most =
          fields.integer("max_output_tokens", 1, std::numeric_limits<std::int64_t>::max()))
    chat["max_completion_tokens"] = *most;
  for (const char* name : {"model", "parallel_tool_calls", "stream", "temperature", "top_p"}) {
    if (const Json* value = fields.find(name)) chat[name] = *value;
  }
  fields.refuse_unknown();
  try {
    ResponseRequest request{read_chat_request(json_text(chat)), {}};
    request.repeated = repeated_fields(fields, request.chat);
    return request;
  } catch (const ApiError& error) {
    throw with_response_names(error);
  }
}

}  // namespace trireme::serve
