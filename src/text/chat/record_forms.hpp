#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace simdjson::dom {
class object;
}

/// The forms of records that `pack` reads, one row a kind of data set, and the advice for records of
/// other forms. SetKind has what a data set of that kind holds.
namespace trireme {

/// The form in which a JSON object holds a chat.
enum class ChatForm {
  conversation,  // "conversations" (or "messages"): one list of messages
  pair,          // "chosen", "rejected": lists, after a "prompt" list if any; or three texts
  request,       // "messages": the question to a model, so an answer is not needed
};

/// The records of one kind of data set.
struct RecordKind {
  std::string_view name;              // SetKind::name
  std::optional<ChatForm> form = {};  // none: the record is a text
  std::string_view keys;              // the usual keys, for help: {"text"}
  std::string_view noun;              // "conversation", for messages
  // Each entry is a list of keys, with commas. A record that has all of them has this form.
  std::span<const std::string_view> marks;
  // The names that --fields takes, "USER,ASSISTANT", and their number; none if it takes no names.
  std::string_view names = "";
  std::size_t num_names = 0;
  std::string_view names_help = "";     // behind `names`, for help
  std::string_view names_refusal = "";  // "two names, USER,ASSISTANT: --fields question,answer"
  std::string_view names_advice = "";   // for a record of unknown form that has so many texts
};

/// Returns all rows, in the order in which help lists them.
std::span<const RecordKind> record_kinds();

/// Returns the row of that name, or null.
const RecordKind* find_record_kind(std::string_view name);

/// Returns the row that has that form; none: the row of texts. The form must not be `request`.
const RecordKind& record_kind(std::optional<ChatForm> form);

/// Returns the names of the kinds that hold chats, "sft, dpo" or, with `last` = " and ",
/// "sft and dpo". If `form` is given, it returns only the kinds of that form.
std::string chat_kind_names(std::string_view last = ", ", std::optional<ChatForm> form = {});

namespace chat_json {

/// The record form that a message asks for in its advice.
inline constexpr std::string_view kMessagesForm =
    R"({"messages": [{"role": "user", "content": ".."}, {"role": "assistant", "content": ".."}]})";

/// Says which known form `record` has, if it lacks the fields that records of `kind` have, and what
/// to do about it, for the end of a message: "; it is a conversation ('messages'), which --kind sft
/// packs". Returns "" for an unknown form.
std::string describe_record_form(const simdjson::dom::object& record, const RecordKind& kind);

/// Says what a message without a role is: "" or "; 'from' and 'value' are ShareGPT's names ...".
std::string describe_message_form(const simdjson::dom::object& message);

/// Advice for a role that a chat does not have: "" or "; ShareGPT's human is user ...".
std::string describe_foreign_role(std::string_view role);

}  // namespace chat_json
}  // namespace trireme
