#include "text/chat/record_reader.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::text::chat_json {
namespace {

/// Returns true if `whole` begins with the messages of `part` (same roles and texts).
bool begins_with(const std::vector<ChatMessage>& whole, const std::vector<ChatMessage>& part) {
  const auto same = [](const ChatMessage& a, const ChatMessage& b) {
    return a.role == b.role && a.content == b.content;
  };
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin(), same);
}

}  // namespace

RecordReader::RecordReader(ChatForm chats, std::vector<std::string> fields)
    : chats_(chats),
      has_own_fields_(!fields.empty()),
      fields_(std::move(fields)),
      messages_(chats == ChatForm::request, chats == ChatForm::pair) {
  if (chats == ChatForm::request || has_own_fields_) return;
  const std::string_view usual = record_kind(chats).fields;
  if (!usual.empty()) fields_ = split(usual, ',');
}

element RecordReader::field(const object& record, const std::string& name) const {
  const auto value = find_value(record, name);
  if (!value) {
    if (find(record, name)) refuse("field '", name, "' is null");
    const RecordKind& kind = record_kind(chats_);
    refuse(
        "no field '", name, "'",
        has_own_fields_ ? describe_known_record(record, kind) : describe_record_form(record, kind));
  }
  return *value;
}

std::string_view RecordReader::text_field(const object& record, const std::string& name) {
  return messages_.values().text_of(field(record, name), formatted("field '{}'", name), "");
}

Conversation RecordReader::read_messages(const object& record, const element& value,
                                         std::string_view name, Conversation prompt) {
  Conversation conversation = messages_.read_list(value, name);
  const auto answers = [](const ChatMessage& one) { return one.role == Role::assistant; };
  if (chats_ != ChatForm::request &&
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
  read_tools(record, conversation);
  return conversation;
}

void RecordReader::read_tools(const object& record, Conversation& conversation) {
  if (!conversation.declares_tools) {
    messages_.read_tools(record, "", "", conversation);
    return;
  }
  constexpr std::array<std::string_view, 2> kTools{"tools", "functions"};
  for (const std::string_view key : kTools) {
    const auto unused = find_value(record, key);
    if (unused && holds_something(*unused))
      messages_.unread().push_back({std::string(key), holds_text(*unused)});
  }
}

void RecordReader::add_system(const object& record, std::vector<Conversation>& conversations) {
  const auto value = find_value(record, "system");
  if (!value) return;
  const ChatMessage message =
      message_of(Role::system, messages_.values().text_of(*value, "field 'system'", ""));
  if (message.content.find_first_not_of(" \t\r\n") == std::string::npos) return;
  for (Conversation& conversation : conversations) {
    const auto speaks = [](const ChatMessage& one) { return one.role == Role::system; };
    if (std::any_of(conversation.messages.begin(), conversation.messages.end(), speaks))
      refuse(
          "field 'system' and a message of role system are both present, must be only one of them");
    conversation.messages.insert(conversation.messages.begin(), message);
  }
}

ChatMessage message_of(Role role, std::string_view content) {
  ChatMessage message;
  message.role = role;
  message.content = content;
  return message;
}

}  // namespace trireme::text::chat_json
