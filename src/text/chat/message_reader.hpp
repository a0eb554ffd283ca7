#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/json/json_fields.hpp"
#include "text/json/python_values.hpp"
#include "text/json/unread_field.hpp"

namespace trireme::chat_json {

/// Reads the messages of a record (ChatReader says what they may hold), and notes the fields that
/// it does not read. Functions throw Refused.
class MessageReader {
 public:
  /// `is_request`: the messages are what a model is asked, so that marks and unread fields do not
  /// matter. `of_pair`: a message of error names the side.
  MessageReader(bool is_request, bool of_pair) : is_request_(is_request), of_pair_(of_pair) {}

  /// Forgets the last record.
  void start() {
    values_.start();
    unread_.clear();
  }

  /// Reads the list of messages in field `name`.
  Conversation read_list(const element& value, std::string_view name);
  /// Reads the tools that `parent`, at `path` of the record ("" or "messages[]."), declares.
  void read_tools(const object& parent, const std::string& where, const std::string& path,
                  Conversation& conversation);

  [[nodiscard]] PythonValues& values() { return values_; }

  /// The fields of the record that were not read so far.
  [[nodiscard]] std::vector<UnreadField>& unread() { return unread_; }

 private:
  /// A list that is given as JSON, or as a text that holds JSON. None if it is absent, empty or "".
  std::optional<array> list_of(const object& parent, const char* key, const std::string& where);
  void add_call(const object& call, const std::string& where, ChatMessage& message);
  void read_calls(const object& parent, const std::string& where, const std::string& path,
                  ChatMessage& message);
  [[nodiscard]] std::optional<bool> read_mark(const object& given, const char* key,
                                              const std::string& where) const;
  void read_marks(const object& given, const std::string& where, const std::string& path,
                  ChatMessage& message);
  void read_content(const element& value, const std::string& where, const std::string& path,
                    std::string& content);
  void read_message(const object& given, const std::string& where, const std::string& path,
                    Conversation& conversation);

  bool is_request_;
  bool of_pair_;
  PythonValues values_;
  std::vector<UnreadField> unread_;
  simdjson::dom::parser inner_;      // of JSON that a text holds
  simdjson::dom::parser arguments_;  // of the arguments of a call, while inner_ holds the calls
  std::string quoted_inner_;         // what the parsers read, with its padding
  std::string quoted_arguments_;
};

}  // namespace trireme::chat_json
