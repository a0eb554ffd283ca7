#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/json/json_fields.hpp"
#include "text/json/python_values.hpp"
#include "text/json/unread_field.hpp"

namespace trireme::text::chat_json {

/// Reads the messages of a record in the form that ChatReader describes, and collects the fields
/// that are not read. Functions throw InvalidRecord.
class MessageReader {
 public:
  /// `is_request`: the record is a request to a model, so training marks and unread fields do not
  /// matter. `of_pair`: error messages name the side of the preference pair.
  MessageReader(bool is_request, bool of_pair) : is_request_(is_request), of_pair_(of_pair) {}

  void start() {
    values_.start();
    unread_.clear();
  }

  /// Reads the list of messages in field `name`. If its first message has "from" and no "role", the
  /// messages have the names of ShareGPT, except in a request.
  Conversation read_list(const element& value, std::string_view name);
  /// Appends the message in field `name`, which must be an answer, with either of these names.
  void read_answer(const object& given, std::string_view name, Conversation& conversation);
  /// Reads the tools that `parent` declares. `path` is its path in the record: "" or "messages[].".
  void read_tools(const object& parent, const std::string& where, const std::string& path,
                  Conversation& conversation);

  [[nodiscard]] PythonValues& values() { return values_; }

  /// Returns the fields of the record that were not read so far.
  [[nodiscard]] std::vector<UnreadField>& unread() { return unread_; }

 private:
  /// Returns a list that is given as JSON, or as a string that contains JSON. Returns none if it is
  /// absent or empty.
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
  /// Reads {"from", "value"}.
  void read_sharegpt(const object& given, const std::string& where, const std::string& path,
                     Conversation& conversation);
  /// Reads the value of a message from function_call: a call or a list of calls, as JSON.
  void read_call_text(std::string_view text, const std::string& where, ChatMessage& message);

  bool is_request_;
  bool of_pair_;
  PythonValues values_;
  std::vector<UnreadField> unread_;
  simdjson::dom::parser inner_;      // for JSON inside a string
  simdjson::dom::parser arguments_;  // for the arguments of a call, while inner_ holds the calls
  std::string quoted_inner_;         // padded JSON texts of the two parsers
  std::string quoted_arguments_;
};

}  // namespace trireme::text::chat_json
