#include <array>

#include "core/error.hpp"
#include "text/chat/record_reader.hpp"

/// The record forms with one conversation. Sources: OpenAI's fine-tuning format, the data formats of
/// LLaMA-Factory, the dataset formats of TRL.
namespace trireme::text::chat_json {
namespace {

constexpr std::array<std::string_view, 2> kListNames{"conversations", "messages"};

/// Returns the first message of the list of messages of the record.
std::optional<object> first_message(const object& record) {
  for (const std::string_view name : kListNames) {
    const auto value = find_value(record, name);
    array list;
    if (!value || value->get(list) != simdjson::SUCCESS || list.begin() == list.end()) continue;
    object first;
    if ((*list.begin()).get(first) == simdjson::SUCCESS) return first;
  }
  return std::nullopt;
}

/// Returns the messages of the prompt: a text of the user, or a list of messages.
Conversation read_prompt(RecordReader& reader, const object& record, const std::string& name) {
  const element value = reader.field(record, name);
  if (!value.is_string()) return reader.messages().read_list(value, name);
  Conversation prompt;
  prompt.messages.push_back(message_of(Role::user, reader.text_field(record, name)));
  return prompt;
}

}  // namespace

bool has_messages(const object& record) {
  const auto first = first_message(record);
  return first && find_value(*first, "role");
}

bool has_sharegpt(const object& record) {
  const auto first = first_message(record);
  return first && find_value(*first, "from") && !find_value(*first, "role");
}

bool has_alpaca(const object& record) {
  return find_value(record, "instruction") && find_value(record, "output");
}

bool has_prompt_completion(const object& record) {
  return find_value(record, "prompt") && find_value(record, "completion");
}

void read_messages(RecordReader& reader, const object& record, std::vector<Conversation>& into) {
  for (const std::string_view name : kListNames) {
    if (const auto value = find_value(record, name)) {
      into.push_back(reader.read_messages(record, *value, name));
      reader.add_system(record, into);
      return reader.note_unread(
          record, std::array<std::string_view, 4>{name, "system", "tools", "functions"});
    }
  }
  for (const std::string_view name : kListNames)
    if (find(record, name)) refuse_missing(record, name);
  refuse("no field 'conversations' (nor 'messages')",
         describe_record_form(record, record_kind(reader.chats())));
}

std::string alpaca_question(RecordReader& reader, const object& record) {
  std::string question;
  for (const char* name : {"instruction", "input"}) {
    if (!find_value(record, name)) continue;
    const std::string_view text = reader.text_field(record, name);
    if (!question.empty() && !text.empty()) question += '\n';
    question += text;
  }
  return question;
}

void read_alpaca_history(RecordReader& reader, const object& record, Conversation& conversation) {
  const auto value = find_value(record, "history");
  if (!value) return;
  array turns;
  if (value->get(turns) != simdjson::SUCCESS) refuse("field 'history' is not a list");
  std::size_t number = 0;
  for (const element turn : turns) {
    const std::string where = formatted("turn {} of field 'history'", number++);
    array texts;
    if (turn.get(texts) != simdjson::SUCCESS || texts.size() != 2)
      refuse(where, " is not a list of two texts, a question and its answer");
    Role role = Role::user;
    for (const element text : texts) {
      conversation.messages.push_back(
          message_of(role, reader.messages().values().text_of(text, where, "")));
      role = Role::assistant;
    }
  }
}

void read_alpaca(RecordReader& reader, const object& record, std::vector<Conversation>& into) {
  Conversation& conversation = into.emplace_back();
  read_alpaca_history(reader, record, conversation);
  conversation.messages.push_back(message_of(Role::user, alpaca_question(reader, record)));
  conversation.messages.push_back(message_of(Role::assistant, reader.text_field(record, "output")));
  reader.read_tools(record, conversation);
  reader.add_system(record, into);
  constexpr std::array<std::string_view, 7> kRead{"instruction", "input", "output",   "history",
                                                  "system",      "tools", "functions"};
  reader.note_unread(record, kRead);
}

Conversation read_completion(RecordReader& reader, const object& record, const std::string& prompt,
                             const std::string& completion, std::size_t& num_prompt) {
  Conversation conversation = read_prompt(reader, record, prompt);
  num_prompt = conversation.messages.size();
  const element value = reader.field(record, completion);
  if (value.is_string()) {
    conversation.messages.push_back(
        message_of(Role::assistant, reader.text_field(record, completion)));
    reader.read_tools(record, conversation);
  } else {
    conversation = reader.read_messages(record, value, completion, std::move(conversation));
  }
  // The loss of these forms is that of the completion, as in TRL.
  for (std::size_t i = 0; i < num_prompt; ++i) conversation.messages[i].is_target = false;
  return conversation;
}

void read_prompt_completion(RecordReader& reader, const object& record,
                            std::vector<Conversation>& into) {
  std::size_t num_prompt = 0;
  into.push_back(read_completion(reader, record, "prompt", "completion", num_prompt));
  reader.add_system(record, into);
  constexpr std::array<std::string_view, 5> kRead{"prompt", "completion", "system", "tools",
                                                  "functions"};
  reader.note_unread(record, kRead);
}

void read_own_fields(RecordReader& reader, const object& record, std::vector<Conversation>& into) {
  const std::string& question = reader.fields()[0];
  const std::string& answer = reader.fields()[1];
  Conversation& conversation = into.emplace_back();
  conversation.messages.push_back(message_of(Role::user, reader.text_field(record, question)));
  conversation.messages.push_back(message_of(Role::assistant, reader.text_field(record, answer)));
  reader.note_unread(record, std::array<std::string_view, 2>{question, answer});
}

}  // namespace trireme::text::chat_json
