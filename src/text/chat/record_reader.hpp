#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/chat/message_reader.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/json_fields.hpp"

namespace trireme::text::chat_json {

/// The parts of a record that several record forms have, and the fields that were not read. All
/// functions throw InvalidRecord.
class RecordReader {
 public:
  /// `fields`: like those of ChatReader.
  RecordReader(ChatForm chats, std::vector<std::string> fields);

  [[nodiscard]] ChatForm chats() const { return chats_; }

  /// Returns true if the caller has given the names of the fields.
  [[nodiscard]] bool has_own_fields() const { return has_own_fields_; }

  /// Returns the given names; without them, for pairs, the usual ones.
  [[nodiscard]] const std::vector<std::string>& fields() const { return fields_; }

  [[nodiscard]] MessageReader& messages() { return messages_; }

  /// Returns a required field.
  [[nodiscard]] element field(const object& record, const std::string& name) const;
  [[nodiscard]] std::string_view text_field(const object& record, const std::string& name);

  /// Reads the list of messages in `value`, which must have an answer, and the tools of the record.
  /// `prompt` is prepended unless the list already begins with it.
  Conversation read_messages(const object& record, const element& value, std::string_view name,
                             Conversation prompt = {});

  /// Reads the tools of the record into a chat that does not declare tools.
  void read_tools(const object& record, Conversation& conversation);

  /// Adds the string in field "system" as system message to chats that have none.
  void add_system(const object& record, std::vector<Conversation>& conversations);

  /// Counts the fields of the record that are not in `read`.
  void note_unread(const object& record, std::span<const std::string_view> read) {
    add_unread(record, read, "", messages_.unread());
  }

 private:
  ChatForm chats_;
  bool has_own_fields_;
  std::vector<std::string> fields_;
  MessageReader messages_;
};

/// Returns a message of that role.
ChatMessage message_of(Role role, std::string_view content);

/// Returns the user's text of a record with "instruction" and "input": both, joined by a newline,
/// without the empty ones.
std::string alpaca_question(RecordReader& reader, const object& record);
/// Appends the pairs of texts in the field "history".
void read_alpaca_history(RecordReader& reader, const object& record, Conversation& conversation);

/// Functions of the rows of record_forms().
bool has_messages(const object& record);
bool has_sharegpt(const object& record);
bool has_alpaca(const object& record);
bool has_prompt_completion(const object& record);
bool has_preference(const object& record);
bool has_rl_prompt(const object& record);
void read_messages(RecordReader& reader, const object& record, std::vector<Conversation>& into);
void read_alpaca(RecordReader& reader, const object& record, std::vector<Conversation>& into);
void read_prompt_completion(RecordReader& reader, const object& record,
                            std::vector<Conversation>& into);
void read_preference(RecordReader& reader, const object& record, std::vector<Conversation>& into);

void read_rl_prompt(RecordReader& reader, const object& record, std::vector<Conversation>& into);

/// Reads a record of two strings, named by the caller (`pack --fields QUESTION,ANSWER`).
void read_own_fields(RecordReader& reader, const object& record, std::vector<Conversation>& into);

}  // namespace trireme::text::chat_json
