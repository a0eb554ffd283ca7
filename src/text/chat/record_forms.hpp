#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace simdjson::dom {
class object;
}

/// The record forms that `pack` reads, one row for each kind of data set, and advice for records of
/// other forms. SetKind describes the contents of the data sets.
namespace trireme::text {

/// The form of a chat in a JSON object.
enum class ChatForm {
  conversation,  // "conversations" or "messages": one list of messages
  pair,     // "chosen" and "rejected": lists, after an optional "prompt" list; or three strings
  request,  // "messages" of a request to a model; no answer is needed
};

/// The records of one kind of data set.
struct RecordKind {
  std::string_view name;              // SetKind::name
  std::optional<ChatForm> form = {};  // none: plain text
  std::string_view keys;              // the usual keys, for help: {"text"}
  std::string_view noun;              // "conversation", for messages
  // Each entry is a comma-separated list of keys. A record with all of the keys has this form.
  std::span<const std::string_view> marks;
  // The names that --fields accepts, for example "USER,ASSISTANT", and their number (0: --fields is
  // not allowed).
  std::string_view names = "";
  std::size_t num_names = 0;
  std::string_view names_help = "";     // help text after `names`
  std::string_view names_refusal = "";  // "two names, USER,ASSISTANT: --fields question,answer"
  std::string_view names_advice = "";   // advice for unknown records with as many strings
};

/// Returns all rows in the order of the help text.
std::span<const RecordKind> record_kinds();
const RecordKind* find_record_kind(std::string_view name);

/// Returns the row with this form (none: the row of plain text). The form must not be `request`.
const RecordKind& record_kind(std::optional<ChatForm> form);

/// Returns the names of the kinds that hold chats, for example "sft, dpo" or, with `last` = " and
/// ", "sft and dpo". With `form`, returns only the kinds of this form.
std::string chat_kind_names(std::string_view last = ", ", std::optional<ChatForm> form = {});

namespace chat_json {

/// The record form that advice in error messages recommends.
inline constexpr std::string_view kMessagesForm =
    R"({"messages": [{"role": "user", "content": ".."}, {"role": "assistant", "content": ".."}]})";

/// Returns the end of an error message for a record without the fields of `kind`. It names the
/// known form of `record` and gives advice: "; it is a conversation ('messages'), which --kind sft
/// packs". Returns "" for an unknown form.
std::string describe_record_form(const simdjson::dom::object& record, const RecordKind& kind);

/// Returns advice for a message without a role, for example "; 'from' and 'value' are ShareGPT's
/// names ...", otherwise "".
std::string describe_message_form(const simdjson::dom::object& message);

/// Returns advice for an unknown role, for example "; the roles of ShareGPT are not read ...",
/// otherwise "".
std::string describe_foreign_role(std::string_view role);

}  // namespace chat_json
}  // namespace trireme::text
