#include "text/chat/chat_reader.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "text/chat/json_fields.hpp"
#include "text/chat/odd_numbers.hpp"
#include "text/chat/python_json.hpp"

namespace trireme {
namespace {

using namespace chat_json;

Conversation question_and_answer(std::string_view question, std::string_view answer) {
  Conversation conversation;
  conversation.messages.resize(2);
  conversation.messages[0].content = question;
  conversation.messages[1].role = Role::assistant;
  conversation.messages[1].content = answer;
  return conversation;
}

/// Role and text of each message of `part`, in order.
bool begins_with(const std::vector<ChatMessage>& whole, const std::vector<ChatMessage>& part) {
  const auto same = [](const ChatMessage& a, const ChatMessage& b) {
    return a.role == b.role && a.content == b.content;
  };
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin(), same);
}

}  // namespace

struct ChatReader::Impl {
  ChatForm form;
  std::vector<std::string> fields;
  simdjson::dom::parser parser;
  simdjson::dom::parser inner;  // of JSON that a text holds
  bool quoted = false;          // the texts may hold odd numbers
  std::string quoted_json;      // what the parsers read, with its padding
  std::string quoted_inner;

  /// As with.parse; reads what Python reads.
  simdjson::error_code parse(simdjson::dom::parser& with, std::string_view json, bool has_padding,
                             std::string& storage, element& parsed);
  /// The digits of a number that is kept as a text.
  [[nodiscard]] std::optional<std::string_view> odd_number(std::string_view text) const;
  std::string_view text_of(const element& value, std::string_view where, const char* what) const;
  void append_object(const object& value, std::string& out) const;
  void append_json(const element& value, std::string& out) const;

  /// A list that is given as JSON, or as a text that holds JSON. None if it is absent, empty or "".
  std::optional<array> list_of(const object& parent, const char* key, const std::string& where);
  void read_tools(const object& parent, const std::string& where, Conversation& conversation);
  void read_calls(const object& parent, const std::string& where, ChatMessage& message);
  void read_content(const element& value, const std::string& where, std::string& content) const;
  void read_message(const object& given, const std::string& where, Conversation& conversation);
  /// `prompt`: what came before, prepended unless the list repeats it.
  Conversation read_messages(const object& root, const element& value, std::string_view name,
                             Conversation prompt = {});
  Conversation read_list(const element& value, std::string_view name);
  [[nodiscard]] std::string_view text_field(const object& root, const std::string& name) const;
  Conversation read_texts(const object& root, std::string_view answer, const std::string& name);
  Conversation read_side(const object& root, const std::string& name);
  void read(const object& root, std::vector<Conversation>& conversations);
};

simdjson::error_code ChatReader::Impl::parse(simdjson::dom::parser& with, std::string_view json,
                                             bool has_padding, std::string& storage,
                                             element& parsed) {
  const simdjson::error_code code = with.parse(json.data(), json.size(), !has_padding).get(parsed);
  if (code == simdjson::SUCCESS) return code;
  auto numbers = quote_odd_numbers(json);
  if (!numbers) return code;
  quoted = true;
  storage = std::move(*numbers);
  return with.parse(storage).get(parsed);
}

std::optional<std::string_view> ChatReader::Impl::odd_number(std::string_view text) const {
  if (!quoted || !text.starts_with(kOddNumber)) return std::nullopt;
  return text.substr(kOddNumber.size());
}

std::string_view ChatReader::Impl::text_of(const element& value, std::string_view where,
                                           const char* what) const {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) refuse(where, what, " is not a text");
  if (odd_number(text)) refuse(where, what, " is not a text");
  if (!simdjson::validate_utf8(text))  // some versions let a lone low surrogate through
    throw Refused{"the text has a lone surrogate or invalid UTF-8", true};
  return text;
}

void ChatReader::Impl::append_object(const object& value, std::string& out) const {
  // A Python dict keeps the place of the first of equal keys, and the value of the last.
  std::vector<std::pair<std::string_view, element>> members;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const auto& member : value) {
    const auto [place, is_new] = places.emplace(member.key, members.size());
    if (is_new) {
      members.emplace_back(member.key, member.value);
    } else {
      members[place->second].second = member.value;
    }
  }
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i != 0) out += ", ";
    append_json_text(members[i].first, out);
    out += ": ";
    append_json(members[i].second, out);
  }
  out += '}';
}

/// Depth is bounded by the parser's own limit of 1,024.
void ChatReader::Impl::append_json(const element& value, std::string& out) const {
  switch (value.type()) {
    case element_type::OBJECT:
      return append_object(object(value), out);
    case element_type::ARRAY: {
      out += '[';
      bool first = true;
      for (const element each : array(value)) {
        if (!std::exchange(first, false)) out += ", ";
        append_json(each, out);
      }
      out += ']';
      return;
    }
    case element_type::STRING:
      if (const auto number = odd_number(std::string_view(value))) {
        out += *number;
        return;
      }
      return append_json_text(text_of(value, "", "a text in JSON"), out);
    case element_type::INT64:
      out += std::to_string(std::int64_t(value));
      return;
    case element_type::UINT64:
      out += std::to_string(std::uint64_t(value));
      return;
    case element_type::DOUBLE:
      return append_json_number(double(value), out);
    case element_type::BOOL:
      out += bool(value) ? "true" : "false";
      return;
    case element_type::NULL_VALUE:
      out += "null";
      return;
  }
}

std::optional<array> ChatReader::Impl::list_of(const object& parent, const char* key,
                                               const std::string& where) {
  std::optional<element> value = find_value(parent, key);
  if (!value) return std::nullopt;
  const bool is_text = value->is_string();
  if (is_text) {
    const std::string_view text = text_of(*value, where, key);
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
    element parsed;
    const simdjson::error_code code = parse(inner, text, false, quoted_inner, parsed);
    if (code != simdjson::SUCCESS)
      refuse(where, key, " is not valid JSON: ", simdjson::error_message(code));
    if (parsed.is_null()) return std::nullopt;
    value = parsed;
  }
  array list;
  if (value->get(list) != simdjson::SUCCESS) refuse(where, key, " is not a list");
  // Python takes an empty list for none, but not the text "[]".
  if (!is_text && list.begin() == list.end()) return std::nullopt;
  return list;
}

void ChatReader::Impl::read_tools(const object& parent, const std::string& where,
                                  Conversation& conversation) {
  std::optional<array> list = list_of(parent, "tools", where);
  if (!list) list = list_of(parent, "functions", where);
  if (!list) return;
  conversation.declares_tools = true;
  conversation.tools.clear();
  for (const element tool : *list) {
    if (!tool.is_object()) refuse(where, "a tool is not an object");
    append_json(tool, conversation.tools.emplace_back());
  }
}

void ChatReader::Impl::read_calls(const object& parent, const std::string& where,
                                  ChatMessage& message) {
  const std::optional<array> list = list_of(parent, "tool_calls", where);
  if (!list) return;
  for (const element each : *list) {
    object call;
    if (each.get(call) != simdjson::SUCCESS) refuse(where, "a tool call is not an object");
    if (const auto function = find_value(call, "function")) {
      if (function->get(call) != simdjson::SUCCESS)
        refuse(where, "the function of a tool call is not an object");
    }
    const auto name = find_value(call, "name");
    if (!name) refuse(where, "a tool call has no name");
    const auto arguments = find(call, "arguments");
    if (!arguments) refuse(where, "a tool call has no arguments");
    ToolCall& added = message.tool_calls.emplace_back();
    added.name = text_of(*name, where, "the name of a tool call");
    if (arguments->is_string() && !odd_number(std::string_view(*arguments))) {
      added.arguments = text_of(*arguments, where, "arguments");
    } else {
      append_json(*arguments, added.arguments);
    }
  }
}

void ChatReader::Impl::read_content(const element& value, const std::string& where,
                                    std::string& content) const {
  array parts;
  if (value.get(parts) != simdjson::SUCCESS) {
    content = text_of(value, where, "content");
    return;
  }
  std::string_view before;
  for (const element part : parts) {
    object given;
    if (part.get(given) != simdjson::SUCCESS) refuse(where, "a part of content is not an object");
    const auto type = find_value(given, "type");
    if (!type) refuse(where, "a part of content has no type");
    if (const std::string_view name = text_of(*type, where, "the type of a part"); name != "text")
      refuse(where, "a part of content is of type '", name, "', must be text");
    const auto text = find_value(given, "text");
    if (!text) refuse(where, "a part of content has no text");
    content.append(std::exchange(before, "\n"));
    content.append(text_of(*text, where, "the text of a part"));
  }
}

void ChatReader::Impl::read_message(const object& given, const std::string& where,
                                    Conversation& conversation) {
  ChatMessage& message = conversation.messages.emplace_back();
  const auto role = find_value(given, "role");
  if (!role) refuse(where, "no role");
  const std::string_view role_text = text_of(*role, where, "role");
  std::optional<Role> known = role_from_name(role_text);
  if (form == ChatForm::request && role_text == "developer") known = Role::system;
  if (!known)
    refuse(where, "unknown role '", role_text, "', must be system, user, assistant or tool");
  message.role = *known;
  if (const auto thought = find_value(given, "reasoning_content"))
    message.reasoning = text_of(*thought, where, "reasoning_content");
  if (message.role == Role::assistant) read_calls(given, where, message);
  if (message.role == Role::system) read_tools(given, where, conversation);
  if (const auto content = find_value(given, "content")) {
    read_content(*content, where, message.content);
  } else if (!message.reasoning && message.tool_calls.empty()) {
    refuse(where, "no content");
  }
}

Conversation ChatReader::Impl::read_list(const element& value, std::string_view name) {
  array list;
  if (value.get(list) != simdjson::SUCCESS) refuse("field '", name, "' is not a list");
  Conversation conversation;
  for (const element each : list) {
    const std::string side = form == ChatForm::pair ? formatted("{} ", name) : "";
    const std::string where = formatted("{}message {}: ", side, conversation.messages.size());
    object given;
    if (each.get(given) != simdjson::SUCCESS) refuse(where, "not an object");
    read_message(given, where, conversation);
  }
  if (conversation.messages.empty()) refuse("field '", name, "' is an empty list");
  return conversation;
}

Conversation ChatReader::Impl::read_messages(const object& root, const element& value,
                                             std::string_view name, Conversation prompt) {
  Conversation conversation = read_list(value, name);
  const auto answers = [](const ChatMessage& one) { return one.role == Role::assistant; };
  if (form != ChatForm::request &&
      std::none_of(conversation.messages.begin(), conversation.messages.end(), answers))
    refuse("field '", name, "' has no assistant message");
  if (!begins_with(conversation.messages, prompt.messages)) {
    conversation.messages.insert(conversation.messages.begin(), prompt.messages.begin(),
                                 prompt.messages.end());
    if (!conversation.declares_tools) {
      conversation.tools = std::move(prompt.tools);
      conversation.declares_tools = prompt.declares_tools;
    }
  }
  if (!conversation.declares_tools) read_tools(root, "", conversation);
  return conversation;
}

std::string_view ChatReader::Impl::text_field(const object& root, const std::string& name) const {
  const auto value = find_value(root, name);
  if (!value) refuse_missing(root, name);
  return text_of(*value, formatted("field '{}'", name), "");
}

/// trl's older form: a prompt and two answers, all texts.
Conversation ChatReader::Impl::read_texts(const object& root, std::string_view answer,
                                          const std::string& name) {
  if (!find_value(root, fields[0])) {
    const std::string what = find(root, fields[0]) ? formatted("field '{}' is null", fields[0])
                                                   : formatted("there is no field '{}'", fields[0]);
    refuse("field '", name, "' is a text, and ", what);
  }
  return question_and_answer(text_field(root, fields[0]), answer);
}

Conversation ChatReader::Impl::read_side(const object& root, const std::string& name) {
  const auto value = find_value(root, name);
  if (!value) refuse_missing(root, name);
  if (value->is_string()) return read_texts(root, text_of(*value, "field ", name.c_str()), name);
  // trl's newer form: the prompt is a list as well, and the sides are answers alone.
  const auto prompt = find_value(root, fields[0]);
  if (prompt && prompt->is_array())
    return read_messages(root, *value, name, read_list(*prompt, fields[0]));
  return read_messages(root, *value, name);
}

void ChatReader::Impl::read(const object& root, std::vector<Conversation>& conversations) {
  if (form == ChatForm::pair) {
    conversations.push_back(read_side(root, fields[1]));
    conversations.push_back(read_side(root, fields[2]));
    return;
  }
  if (form == ChatForm::request) {
    const auto value = find_value(root, "messages");
    if (!value) refuse_missing(root, "messages");
    conversations.push_back(read_messages(root, *value, "messages"));
    return;
  }
  if (!fields.empty()) {
    const std::string_view question = text_field(root, fields[0]);
    conversations.push_back(question_and_answer(question, text_field(root, fields[1])));
    return;
  }
  for (const char* name : {"conversations", "messages"}) {
    if (const auto value = find_value(root, name)) {
      conversations.push_back(read_messages(root, *value, name));
      return;
    }
  }
  for (const char* name : {"conversations", "messages"})
    if (find(root, name)) refuse_missing(root, name);
  refuse("no field 'conversations' (nor 'messages')");
}

ChatReader::ChatReader(ChatForm form, std::vector<std::string> fields)
    : impl_(std::make_unique<Impl>()) {
  if (form == ChatForm::pair && fields.empty()) fields = {"prompt", "chosen", "rejected"};
  impl_->form = form;
  impl_->fields = std::move(fields);
}

ChatReader::ChatReader(ChatReader&&) noexcept = default;
ChatReader& ChatReader::operator=(ChatReader&&) noexcept = default;
ChatReader::~ChatReader() = default;

std::optional<ChatProblem> ChatReader::read(const char* json, std::size_t size,
                                            std::vector<Conversation>& conversations) {
  conversations.clear();
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::string_view(json, size).starts_with(kByteOrderMark)) {
    json += kByteOrderMark.size();
    size -= kByteOrderMark.size();
  }
  element root;
  impl_->quoted = false;
  const simdjson::error_code code =
      impl_->parse(impl_->parser, {json, size}, true, impl_->quoted_json, root);
  if (code != simdjson::SUCCESS) {
    const bool bad_text = code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR;
    return ChatProblem{formatted("not valid JSON: {}", simdjson::error_message(code)), bad_text};
  }
  object record;
  if (root.get(record) != simdjson::SUCCESS) return ChatProblem{"not a JSON object"};
  try {
    impl_->read(record, conversations);
  } catch (const Refused& refused) {
    conversations.clear();
    return ChatProblem{refused.reason, refused.bad_text};
  }
  return std::nullopt;
}

}  // namespace trireme
