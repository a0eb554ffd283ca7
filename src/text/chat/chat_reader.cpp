#include "text/chat/chat_reader.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "text/chat/message_reader.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/json_break.hpp"
#include "text/json/json_fields.hpp"

namespace trireme::text {
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

/// Returns true if `whole` begins with the messages of `part` (same roles and texts).
bool begins_with(const std::vector<ChatMessage>& whole, const std::vector<ChatMessage>& part) {
  const auto same = [](const ChatMessage& a, const ChatMessage& b) {
    return a.role == b.role && a.content == b.content;
  };
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin(), same);
}

/// Returns true if the first question of `chat` is `text`.
bool asks(const Conversation& chat, std::string_view text) {
  const auto of_user = [](const ChatMessage& message) { return message.role == Role::user; };
  const auto first = std::find_if(chat.messages.begin(), chat.messages.end(), of_user);
  return first != chat.messages.end() && first->content == text;
}

}  // namespace

struct ChatReader::Impl {
  Impl(ChatForm kind, std::vector<std::string> names)
      : form(kind),
        own_fields(!names.empty()),
        fields(std::move(names)),
        messages(kind == ChatForm::request, kind == ChatForm::pair) {
    if (form == ChatForm::pair && fields.empty()) fields = {"prompt", "chosen", "rejected"};
  }

  ChatForm form;
  bool own_fields;  // `fields` are names given by the caller
  std::vector<std::string> fields;
  simdjson::dom::parser parser;
  std::string quoted_json;  // the padded JSON text if it has odd numbers
  MessageReader messages;

  /// Reads a list of messages. `prompt` is prepended unless the list already begins with it.
  Conversation read_messages(const object& root, const element& value, std::string_view name,
                             Conversation prompt = {});
  /// Returns a required field. Throws InvalidRecord if it is null or absent.
  [[nodiscard]] element field(const object& root, const std::string& name) const;
  [[nodiscard]] std::string_view text_field(const object& root, const std::string& name);
  Conversation read_texts(const object& root, std::string_view answer, const std::string& name);
  Conversation read_side(const object& root, const std::string& name);
  void read_pair(const object& root, std::vector<Conversation>& conversations);
  void read_conversation(const object& root, std::vector<Conversation>& conversations);
  void add_system(const object& root, std::vector<Conversation>& conversations);

  void note_unread(const object& root, std::span<const std::string_view> read) {
    add_unread(root, read, "", messages.unread());
  }

  void read(const object& root, std::vector<Conversation>& conversations);
};

Conversation ChatReader::Impl::read_messages(const object& root, const element& value,
                                             std::string_view name, Conversation prompt) {
  Conversation conversation = messages.read_list(value, name);
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
  if (!conversation.declares_tools) {
    messages.read_tools(root, "", "", conversation);
  } else {
    constexpr std::array<std::string_view, 2> kTools{"tools", "functions"};
    for (const std::string_view key : kTools) {
      const auto unused = find_value(root, key);
      if (unused && holds_something(*unused))
        messages.unread().push_back({std::string(key), holds_text(*unused)});
    }
  }
  return conversation;
}

element ChatReader::Impl::field(const object& root, const std::string& name) const {
  const auto value = find_value(root, name);
  if (!value) {
    if (find(root, name)) refuse("field '", name, "' is null");
    refuse("no field '", name, "'", describe_record_form(root, record_kind(form)));
  }
  return *value;
}

std::string_view ChatReader::Impl::text_field(const object& root, const std::string& name) {
  return messages.values().text_of(field(root, name), formatted("field '{}'", name), "");
}

/// Reads the older form of trl: a prompt and two answers, all strings.
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
  const element value = field(root, name);
  if (value.is_string())
    return read_texts(root, messages.values().text_of(value, "field ", name.c_str()), name);
  // The newer form of trl: the prompt is also a list, and the sides contain only the answers.
  const auto prompt = find_value(root, fields[0]);
  if (prompt && prompt->is_array())
    return read_messages(root, value, name, messages.read_list(*prompt, fields[0]));
  return read_messages(root, value, name);
}

void ChatReader::Impl::read_pair(const object& root, std::vector<Conversation>& conversations) {
  conversations.push_back(read_side(root, fields[1]));
  conversations.push_back(read_side(root, fields[2]));
  std::vector<std::string_view> read{fields[1], fields[2]};
  const auto prompt = find_value(root, fields[0]);
  const bool sides_are_texts = find_value(root, fields[1])->is_string();
  if (sides_are_texts || !prompt || !prompt->is_string() ||
      asks(conversations[0], std::string_view(*prompt)))
    read.push_back(fields[0]);
  if (!sides_are_texts) read.insert(read.end(), {"tools", "functions"});
  if (!own_fields) {
    add_system(root, conversations);
    read.push_back("system");
  }
  note_unread(root, read);
}

void ChatReader::Impl::read_conversation(const object& root,
                                         std::vector<Conversation>& conversations) {
  if (own_fields) {
    const std::string_view question = text_field(root, fields[0]);
    conversations.push_back(question_and_answer(question, text_field(root, fields[1])));
    return note_unread(root, std::array<std::string_view, 2>{fields[0], fields[1]});
  }
  for (const std::string_view name : {"conversations", "messages"}) {
    if (const auto value = find_value(root, name)) {
      conversations.push_back(read_messages(root, *value, name));
      add_system(root, conversations);
      return note_unread(root,
                         std::array<std::string_view, 4>{name, "system", "tools", "functions"});
    }
  }
  for (const char* name : {"conversations", "messages"})
    if (find(root, name)) refuse_missing(root, name);
  refuse("no field 'conversations' (nor 'messages')",
         describe_record_form(root, record_kind(form)));
}

/// Adds the string in field "system" as system message to chats that have none.
void ChatReader::Impl::add_system(const object& root, std::vector<Conversation>& conversations) {
  const auto value = find_value(root, "system");
  if (!value) return;
  ChatMessage message;
  message.role = Role::system;
  message.content = messages.values().text_of(*value, "field 'system'", "");
  if (message.content.find_first_not_of(" \t\r\n") == std::string::npos) return;
  for (Conversation& conversation : conversations) {
    const auto speaks = [](const ChatMessage& one) { return one.role == Role::system; };
    if (std::any_of(conversation.messages.begin(), conversation.messages.end(), speaks))
      refuse(
          "field 'system' and a message of role system are both present, must be only one of them");
    conversation.messages.insert(conversation.messages.begin(), message);
  }
}

void ChatReader::Impl::read(const object& root, std::vector<Conversation>& conversations) {
  if (form == ChatForm::pair) return read_pair(root, conversations);
  if (form == ChatForm::conversation) return read_conversation(root, conversations);
  const auto value = find_value(root, "messages");
  if (!value) refuse_missing(root, "messages");
  conversations.push_back(read_messages(root, *value, "messages"));
}

ChatReader::ChatReader(ChatForm form, std::vector<std::string> fields)
    : impl_(std::make_unique<Impl>(form, std::move(fields))) {}

const std::vector<UnreadField>& ChatReader::unread() const {
  return impl_->messages.unread();
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
  impl_->messages.start();
  const simdjson::error_code code =
      impl_->messages.values().parse(impl_->parser, {json, size}, true, impl_->quoted_json, root);
  if (code != simdjson::SUCCESS) {
    const bool bad_text = code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR;
    return ChatProblem{formatted("not valid JSON: {}{}", simdjson::error_message(code),
                                 record_break({json, size})),
                       bad_text};
  }
  object record;
  if (root.get(record) != simdjson::SUCCESS) return ChatProblem{"not a JSON object"};
  try {
    impl_->read(record, conversations);
  } catch (const InvalidRecord& refused) {
    conversations.clear();
    impl_->messages.unread().clear();
    return ChatProblem{refused.reason, refused.bad_text};
  }
  merge_unread(impl_->messages.unread());
  return std::nullopt;
}

}  // namespace trireme::text
