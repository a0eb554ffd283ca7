#include "text/chat/message_reader.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/json_break.hpp"

namespace trireme::text::chat_json {
namespace {

/// Maps newer and older role names of OpenAI's API: developer is system, and function is tool.
std::optional<Role> role_named(std::string_view name) {
  if (name == "developer") return Role::system;
  if (name == "function") return Role::tool;
  return role_from_name(name);
}

/// The fields of a message that are read, for each role.
constexpr std::array<std::string_view, 4> kMessageFields{"role", "content", "weight", "train"};
constexpr std::array<std::string_view, 6> kSystemFields{"role",  "content", "weight",
                                                        "train", "tools",   "functions"};
constexpr std::array<std::string_view, 7> kAnswerFields{
    "role", "content", "weight", "train", "reasoning_content", "tool_calls", "function_call"};

constexpr std::array<std::string_view, 4> kShareGptFields{"from", "value", "weight", "train"};

/// The names in "from" of ShareGPT and of data sets in its form.
struct ShareGptRole {
  std::string_view name;
  Role role;
  bool is_call = false;  // the value is a call of a tool
};

constexpr std::array kShareGptRoles{
    ShareGptRole{"human", Role::user},
    ShareGptRole{"gpt", Role::assistant},
    ShareGptRole{"system", Role::system},
    ShareGptRole{"observation", Role::tool},
    ShareGptRole{"function_call", Role::assistant, true},
    ShareGptRole{"user", Role::user},
    ShareGptRole{"assistant", Role::assistant},
    ShareGptRole{"chatgpt", Role::assistant},
    ShareGptRole{"bing", Role::assistant},
    ShareGptRole{"bard", Role::assistant},
    ShareGptRole{"model", Role::assistant},
    ShareGptRole{"ai", Role::assistant},
    ShareGptRole{"tool", Role::tool},
    ShareGptRole{"function", Role::tool},
    ShareGptRole{"function_response", Role::tool},
    ShareGptRole{"ipython", Role::tool},
};

bool is_sharegpt_message(const object& given) {
  return find_value(given, "from") && !find_value(given, "role");
}

bool is_sharegpt_list(const array& list) {
  object first;
  return list.begin() != list.end() && (*list.begin()).get(first) == simdjson::SUCCESS &&
         is_sharegpt_message(first);
}

std::span<const std::string_view> fields_of_role(Role role) {
  if (role == Role::assistant) return kAnswerFields;
  if (role == Role::system) return kSystemFields;
  return kMessageFields;
}

}  // namespace

std::optional<array> MessageReader::list_of(const object& parent, const char* key,
                                            const std::string& where) {
  std::optional<element> value = find_value(parent, key);
  if (!value) return std::nullopt;
  const bool is_text = value->is_string();
  if (is_text) {
    const std::string_view text = values_.text_of(*value, where, key);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
    element parsed;
    const simdjson::error_code code = values_.parse(inner_, text, false, quoted_inner_, parsed);
    if (code != simdjson::SUCCESS)
      refuse(where, key, " is not valid JSON: ", simdjson::error_message(code));
    if (parsed.is_null()) return std::nullopt;
    value = parsed;
  }
  array list;
  if (value->get(list) != simdjson::SUCCESS) refuse(where, key, " is not a list");
  // Python treats an empty list as false, but not the string "[]".
  if (!is_text && list.begin() == list.end()) return std::nullopt;
  return list;
}

void MessageReader::read_tools(const object& parent, const std::string& where,
                               const std::string& path, Conversation& conversation) {
  std::optional<array> list = list_of(parent, "tools", where);
  if (!list) {
    list = list_of(parent, "functions", where);
  } else if (const auto second = find_value(parent, "functions");
             second && holds_something(*second)) {
    unread_.push_back({cat(path, "functions"), holds_text(*second)});
  }
  if (!list) return;
  conversation.declares_tools = true;
  conversation.tools.clear();
  for (const element tool : *list) {
    if (!tool.is_object()) refuse(where, "a tool is not an object");
    values_.append_json(tool, conversation.tools.emplace_back());
  }
}

void MessageReader::add_call(const object& call, const std::string& where, ChatMessage& message) {
  const auto name = find_value(call, "name");
  if (!name) refuse(where, "a tool call has no name");
  const auto given = find(call, "arguments");
  if (!given) refuse(where, "a tool call has no arguments");
  ToolCall& added = message.tool_calls.emplace_back();
  added.name = values_.text_of(*name, where, "the name of a tool call");
  if (!given->is_string() || values_.odd_number(std::string_view(*given))) {
    values_.append_json(*given, added.arguments);
    return;
  }
  added.arguments = values_.text_of(*given, where, "arguments");
  if (is_request_) return;  // a model sees its earlier calls unchanged
  element parsed;
  if (values_.parse(arguments_, added.arguments, false, quoted_arguments_, parsed) !=
      simdjson::SUCCESS) {
    refuse(where, "the arguments of tool call '", added.name, "' are not valid JSON",
           json_break(added.arguments));
  }
}

void MessageReader::read_calls(const object& parent, const std::string& where,
                               const std::string& path, ChatMessage& message) {
  constexpr std::array<std::string_view, 2> kWrapper{"type", "function"};
  constexpr std::array<std::string_view, 3> kCall{"type", "name", "arguments"};
  const std::optional<array> list = list_of(parent, "tool_calls", where);
  const auto legacy = find_value(parent, "function_call");
  if (legacy && list)
    refuse(where, "tool_calls and function_call are both present, must be only one of them");
  if (legacy) {
    object call;
    if (legacy->get(call) != simdjson::SUCCESS) refuse(where, "function_call is not an object");
    add_call(call, where, message);
    return add_unread(call, kCall, cat(path, "function_call."), unread_);
  }
  if (!list) return;
  const std::string calls_path = cat(path, "tool_calls[].");
  for (const element each : *list) {
    object call;
    if (each.get(call) != simdjson::SUCCESS) refuse(where, "a tool call is not an object");
    if (const auto function = find_value(call, "function")) {
      add_unread(call, kWrapper, calls_path, unread_);
      if (function->get(call) != simdjson::SUCCESS)
        refuse(where, "the function of a tool call is not an object");
    }
    add_call(call, where, message);
    add_unread(call, kCall, calls_path, unread_);
  }
}

std::optional<bool> MessageReader::read_mark(const object& given, const char* key,
                                             const std::string& where) const {
  const auto value = find_value(given, key);
  if (!value) return std::nullopt;
  bool flag = false;
  if (value->get(flag) == simdjson::SUCCESS) return flag;
  double number = -1;
  if (value->get(number) == simdjson::SUCCESS && (number == 0 || number == 1)) return number == 1;
  std::string shown;
  values_.append_json(*value, shown);
  constexpr std::size_t kShown = 40;
  if (shown.size() > kShown) shown = "a longer value";
  refuse(where, key, " is ", shown, ", must be 0, 1, false or true");
}

void MessageReader::read_marks(const object& given, const std::string& where,
                               const std::string& path, ChatMessage& message) {
  const std::optional<bool> weight = read_mark(given, "weight", where);
  const std::optional<bool> train = read_mark(given, "train", where);
  if (weight && train && *weight != *train) refuse(where, "weight and train contradict each other");
  if (message.role == Role::assistant) {
    message.is_target = weight.value_or(train.value_or(true));
    return;
  }
  // Only answers are training targets, so a mark that selects another message has no effect.
  if (weight.value_or(false)) unread_.push_back({cat(path, "weight"), false});
  if (train.value_or(false)) unread_.push_back({cat(path, "train"), false});
}

void MessageReader::read_content(const element& value, const std::string& where,
                                 const std::string& path, std::string& content) {
  constexpr std::array<std::string_view, 2> kPart{"type", "text"};
  array parts;
  if (value.get(parts) != simdjson::SUCCESS) {
    content = values_.text_of(value, where, "content");
    return;
  }
  std::string_view before;
  for (const element part : parts) {
    object given;
    if (part.get(given) != simdjson::SUCCESS) refuse(where, "a part of content is not an object");
    const auto type = find_value(given, "type");
    if (!type) refuse(where, "a part of content has no type");
    if (const std::string_view name = values_.text_of(*type, where, "the type of a part");
        name != "text")
      refuse(where, "a part of content is of type '", name, "', must be text");
    const auto text = find_value(given, "text");
    if (!text) refuse(where, "a part of content has no text");
    content.append(std::exchange(before, "\n"));
    content.append(values_.text_of(*text, where, "the text of a part"));
    add_unread(given, kPart, cat(path, "content[]."), unread_);
  }
}

void MessageReader::read_message(const object& given, const std::string& where,
                                 const std::string& path, Conversation& conversation) {
  ChatMessage& message = conversation.messages.emplace_back();
  const auto role = find_value(given, "role");
  if (!role) refuse(where, "no role", describe_message_form(given));
  const std::string_view role_text = values_.text_of(*role, where, "role");
  const std::optional<Role> known = role_named(role_text);
  if (!known) {
    refuse(where, "unknown role '", role_text, "', must be system, user, assistant or tool",
           describe_foreign_role(role_text));
  }
  message.role = *known;
  if (const auto thought = find_value(given, "reasoning_content"))
    message.reasoning = values_.text_of(*thought, where, "reasoning_content");
  if (message.role == Role::assistant) read_calls(given, where, path, message);
  if (message.role == Role::system) read_tools(given, where, path, conversation);
  if (const auto content = find_value(given, "content")) {
    read_content(*content, where, path, message.content);
  } else if (!message.reasoning && message.tool_calls.empty()) {
    refuse(where, "no content");
  }
  if (is_request_) return;
  read_marks(given, where, path, message);
  add_unread(given, fields_of_role(message.role), path, unread_);
}

void MessageReader::read_call_text(std::string_view text, const std::string& where,
                                   ChatMessage& message) {
  element parsed;
  if (values_.parse(inner_, text, false, quoted_inner_, parsed) != simdjson::SUCCESS)
    refuse(where, "the value from function_call is not valid JSON", json_break(text));
  constexpr std::array<std::string_view, 3> kCall{"type", "name", "arguments"};
  const auto add = [&](const element& each) {
    object call;
    if (each.get(call) != simdjson::SUCCESS) refuse(where, "a tool call is not an object");
    add_call(call, where, message);
    add_unread(call, kCall, "function_call.", unread_);
  };
  array list;
  if (parsed.get(list) != simdjson::SUCCESS) return add(parsed);
  for (const element each : list) add(each);
}

void MessageReader::read_sharegpt(const object& given, const std::string& where,
                                  const std::string& path, Conversation& conversation) {
  ChatMessage& message = conversation.messages.emplace_back();
  const auto from = find_value(given, "from");
  if (!from) refuse(where, "no field 'from'");
  const std::string_view name = values_.text_of(*from, where, "from");
  const auto* known = std::find_if(kShareGptRoles.begin(), kShareGptRoles.end(),
                                   [&](const ShareGptRole& row) { return row.name == name; });
  if (known == kShareGptRoles.end())
    refuse(where, "unknown 'from' '", name,
           "', must be human, gpt, system, observation or function_call");
  message.role = known->role;
  const auto value = find_value(given, "value");
  if (!value) refuse(where, "no field 'value'");
  const std::string_view text = values_.text_of(*value, where, "value");
  if (known->is_call) {
    read_call_text(text, where, message);
  } else {
    message.content = text;
  }
  read_marks(given, where, path, message);
  add_unread(given, kShareGptFields, path, unread_);
}

void MessageReader::read_answer(const object& given, std::string_view name,
                                Conversation& conversation) {
  const std::string where = formatted("field '{}': ", name);
  const std::string path = cat(name, ".");
  is_sharegpt_message(given) ? read_sharegpt(given, where, path, conversation)
                             : read_message(given, where, path, conversation);
  if (conversation.messages.back().role != Role::assistant)
    refuse(where, "the message is not an answer of the assistant");
}

Conversation MessageReader::read_list(const element& value, std::string_view name) {
  array list;
  if (value.get(list) != simdjson::SUCCESS) {
    object one;
    refuse("field '", name, "' is not a list",
           value.get(one) == simdjson::SUCCESS ? describe_message_form(one) : "");
  }
  Conversation conversation;
  const std::string path = cat(name, "[].");
  const bool is_sharegpt = !is_request_ && is_sharegpt_list(list);
  for (const element each : list) {
    const std::string side = of_pair_ ? formatted("{} ", name) : "";
    const std::string where = formatted("{}message {}: ", side, conversation.messages.size());
    object given;
    if (each.get(given) != simdjson::SUCCESS) refuse(where, "not an object");
    is_sharegpt ? read_sharegpt(given, where, path, conversation)
                : read_message(given, where, path, conversation);
  }
  if (conversation.messages.empty())
    refuse("field '", name, "' is an empty list, must hold at least one message");
  return conversation;
}

}  // namespace trireme::text::chat_json
