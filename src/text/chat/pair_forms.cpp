#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "text/chat/record_reader.hpp"

/// The record form with two conversations. Sources: the dataset formats of TRL, UltraFeedback
/// (binarized), the data formats of LLaMA-Factory.
namespace trireme::text::chat_json {
namespace {

/// Reads the two sides of one record and remembers which fields it has read.
class PairReader {
 public:
  PairReader(RecordReader& reader, const object& record)
      : reader_(reader), record_(record), prompt_(find_value(record, prompt_name())) {}

  Conversation read_side(const std::string& name) {
    const element value = reader_.field(record_, name);
    if (value.is_string()) return read_text(value, name);
    if (value.is_object()) return read_message(object(value), name);
    // TRL's newer form has a list as prompt, and its sides contain only the answers.
    read_.insert({"tools", "functions"});
    if (prompt_ && prompt_->is_array()) {
      read_.insert(prompt_name());
      return reader_.read_messages(record_, value, name,
                                   reader_.messages().read_list(*prompt_, prompt_name()));
    }
    return reader_.read_messages(record_, value, name);
  }

  /// Returns the names of the fields that are read.
  [[nodiscard]] std::vector<std::string_view> read_fields(const Conversation& chosen) {
    // A prompt that the sides repeat is not lost. In UltraFeedback it is a text.
    if (!prompt_ || !prompt_->is_string() || asks(chosen, std::string_view(*prompt_)))
      read_.insert(prompt_name());
    read_.insert({reader_.fields()[1], reader_.fields()[2]});
    if (!reader_.has_own_fields()) read_.insert("system");
    return {read_.begin(), read_.end()};
  }

 private:
  [[nodiscard]] const std::string& prompt_name() const { return reader_.fields()[0]; }

  /// Returns true if the first question of `chat` is `text`.
  static bool asks(const Conversation& chat, std::string_view text) {
    const auto of_user = [](const ChatMessage& message) { return message.role == Role::user; };
    const auto first = std::find_if(chat.messages.begin(), chat.messages.end(), of_user);
    return first != chat.messages.end() && first->content == text;
  }

  /// Reads a side that is a text: after the prompt (the older form of TRL), or after the
  /// instruction of an Alpaca record (LLaMA-Factory).
  Conversation read_text(const element& value, const std::string& name) {
    const std::string_view answer =
        reader_.messages().values().text_of(value, "field ", name.c_str());
    Conversation side;
    if (prompt_) {
      read_.insert(prompt_name());
      side.messages.push_back(message_of(Role::user, reader_.text_field(record_, prompt_name())));
    } else if (!reader_.has_own_fields() && find_value(record_, "instruction")) {
      read_.insert({"instruction", "input", "history", "tools", "functions"});
      read_alpaca_history(reader_, record_, side);
      side.messages.push_back(message_of(Role::user, alpaca_question(reader_, record_)));
      reader_.read_tools(record_, side);
    } else {
      const std::string what = find(record_, prompt_name())
                                   ? formatted("field '{}' is null", prompt_name())
                                   : formatted("there is no field '{}'", prompt_name());
      refuse("field '", name, "' is a text, and ", what);
    }
    side.messages.push_back(message_of(Role::assistant, answer));
    return side;
  }

  /// Reads a side that is one message after a list of messages (LLaMA-Factory).
  Conversation read_message(const object& value, const std::string& name) {
    Conversation side;
    for (const char* list : {"conversations", "messages"}) {
      const auto before = find_value(record_, list);
      if (!before) continue;
      read_.insert({list, "tools", "functions"});
      side = reader_.messages().read_list(*before, list);
      reader_.messages().read_answer(value, name, side);
      reader_.read_tools(record_, side);
      return side;
    }
    refuse("field '", name,
           "' is one message, and there is no field 'conversations' (nor 'messages')");
  }

  RecordReader& reader_;
  const object& record_;
  std::optional<element> prompt_;
  std::set<std::string_view> read_;
};

bool is_same(const ChatMessage& one, const ChatMessage& other) {
  const auto is_same_call = [](const ToolCall& a, const ToolCall& b) {
    return a.name == b.name && a.arguments == b.arguments;
  };
  return one.role == other.role && one.content == other.content &&
         one.reasoning == other.reasoning &&
         std::ranges::equal(one.tool_calls, other.tool_calls, is_same_call);
}

/// Refuses a record with sides that differ before an answer. Their scores could not be compared.
void check_same_prompt(const RecordReader& reader, const Conversation& chosen,
                       const Conversation& rejected) {
  const auto [one, other] = std::ranges::mismatch(chosen.messages, rejected.messages, is_same);
  if (one == chosen.messages.end() || other == rejected.messages.end()) return;
  if (one->role == Role::assistant && other->role == Role::assistant) return;
  refuse("fields '", reader.fields()[1], "' and '", reader.fields()[2],
         "' have different prompts: they differ in message ",
         formatted("{} ({} and {})", one - chosen.messages.begin(), role_name(one->role),
                   role_name(other->role)),
         ", and the two sides of a pair may only differ from an answer on");
}

}  // namespace

bool has_preference(const object& record) {
  return find_value(record, "chosen") && find_value(record, "rejected");
}

void read_preference(RecordReader& reader, const object& record, std::vector<Conversation>& into) {
  PairReader pair(reader, record);
  into.push_back(pair.read_side(reader.fields()[1]));
  into.push_back(pair.read_side(reader.fields()[2]));
  const std::vector<std::string_view> read = pair.read_fields(into[0]);
  if (!reader.has_own_fields()) reader.add_system(record, into);
  check_same_prompt(reader, into[0], into[1]);
  reader.note_unread(record, read);
}

}  // namespace trireme::text::chat_json
