#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"
#include "text/chat/record_reader.hpp"

/// The record form with one labeled answer (KTO). Sources: the dataset formats of TRL, the data
/// formats of LLaMA-Factory.
namespace trireme::text::chat_json {
namespace {

constexpr std::array<std::string_view, 2> kLists{"messages", "conversations"};
constexpr std::array<std::string_view, 2> kLabels{"label", "kto_tag"};

/// Returns the first of these names that is a field of the record, or "".
template <std::size_t N>
std::string first_of(const object& record, const std::array<std::string_view, N>& names) {
  const auto* found = std::ranges::find_if(
      names, [&](std::string_view name) { return find_value(record, name).has_value(); });
  return found == names.end() ? std::string() : std::string(*found);
}

bool read_label(const RecordReader& reader, const object& record, const std::string& name) {
  const element value = reader.field(record, name);
  bool flag = false;
  if (value.get(flag) == simdjson::SUCCESS) return flag;
  double number = 0;  // tables of pandas with missing values hold 1.0 and 0.0
  if (value.get(number) != simdjson::SUCCESS || (number != 0 && number != 1))
    refuse("field '", name, "' must be true (a desirable answer) or false");
  return number == 1;
}

/// Reads the labeled answer of one record and remembers which fields it has read.
class AnswerReader {
 public:
  AnswerReader(RecordReader& reader, const object& record) : reader_(reader), record_(record) {}

  /// Returns the conversation that ends with the answer. num_prompt() messages come before it.
  Conversation read() {
    read_.insert({"tools", "functions"});
    if (!reader_.has_own_fields() && !find_value(record_, prompt_name())) {
      const std::string list = first_of(record_, kLists);
      if (!list.empty()) return read_list(*read_.insert(list).first);
      if (find_value(record_, "instruction")) return read_alpaca();
    }
    read_.insert({prompt_name(), reader_.fields()[1]});
    Conversation conversation =
        read_completion(reader_, record_, prompt_name(), reader_.fields()[1], num_prompt_);
    if (num_prompt_ == 0) refuse("field '", prompt_name(), "' has no message");
    return conversation;
  }

  bool read_label() {
    std::string name = reader_.fields()[2];
    if (!reader_.has_own_fields() && !find_value(record_, name)) {
      const std::string other = first_of(record_, kLabels);
      if (!other.empty()) name = other;
    }
    read_.insert(name);
    return chat_json::read_label(reader_, record_, name);
  }

  [[nodiscard]] std::size_t num_prompt() const { return num_prompt_; }

  /// Returns the names of the fields that are read.
  [[nodiscard]] std::vector<std::string_view> read_fields() {
    if (!reader_.has_own_fields()) read_.insert("system");
    return {read_.begin(), read_.end()};
  }

 private:
  [[nodiscard]] const std::string& prompt_name() const { return reader_.fields()[0]; }

  /// Reads a list of messages. The last one is the answer.
  Conversation read_list(const std::string& name) {
    Conversation conversation = reader_.read_messages(record_, *find_value(record_, name), name);
    num_prompt_ = conversation.messages.size() - 1;
    if (conversation.messages.back().role != Role::assistant)
      refuse("the last message of field '", name, "' must be an assistant message");
    if (num_prompt_ == 0) refuse("field '", name, "' has no message before its answer");
    for (std::size_t i = 0; i < num_prompt_; ++i) conversation.messages[i].is_target = false;
    return conversation;
  }

  /// Reads the fields of an Alpaca record (LLaMA-Factory).
  Conversation read_alpaca() {
    read_.insert({"instruction", "input", "output", "history"});
    Conversation conversation;
    read_alpaca_history(reader_, record_, conversation);
    for (ChatMessage& message : conversation.messages) message.is_target = false;
    conversation.messages.push_back(message_of(Role::user, alpaca_question(reader_, record_)));
    num_prompt_ = conversation.messages.size();
    conversation.messages.push_back(
        message_of(Role::assistant, reader_.text_field(record_, "output")));
    reader_.read_tools(record_, conversation);
    return conversation;
  }

  RecordReader& reader_;
  const object& record_;
  std::set<std::string> read_;
  std::size_t num_prompt_ = 0;
};

}  // namespace

bool has_labeled_text(const object& record) {
  const auto has = [&](std::string_view name) { return find_value(record, name).has_value(); };
  return (has("prompt") && has("completion") && has("label")) ||
         (has("instruction") && has("output") && has("kto_tag"));
}

bool has_label(const object& record) {
  if (first_of(record, kLabels).empty()) return false;
  const auto has = [&](std::string_view name) { return find_value(record, name).has_value(); };
  return (has("prompt") && has("completion")) || !first_of(record, kLists).empty() ||
         (has("instruction") && has("output"));
}

void read_labeled(RecordReader& reader, const object& record, std::vector<Conversation>& into) {
  AnswerReader answer(reader, record);
  const Conversation whole = answer.read();
  const bool is_desirable = answer.read_label();
  Conversation prompt = whole;
  prompt.messages.resize(answer.num_prompt());
  into.push_back(is_desirable ? whole : prompt);
  into.push_back(is_desirable ? prompt : whole);
  if (!reader.has_own_fields()) reader.add_system(record, into);
  reader.note_unread(record, answer.read_fields());
}

}  // namespace trireme::text::chat_json
