#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"

namespace simdjson::dom {
class object;
}

/// The records that `pack` reads: a table of the kinds of data sets, a table of the record forms of
/// chats, and advice for records of other forms. SetContent describes the contents of the data sets.
namespace trireme::text {

namespace chat_json {
class RecordReader;
}

/// The chats of a JSON object. A kind of data set with records of its own needs no constant here:
/// its row has ChatForm{"name"}.
struct ChatForm {
  std::string_view name;

  static const ChatForm conversation;  // one conversation
  static const ChatForm pair;          // two conversations, chosen and rejected
  static const ChatForm prompt;        // one conversation without its last answer
  static const ChatForm request;       // "messages" of a request to a model; no answer is needed

  bool operator==(const ChatForm&) const = default;
};

inline constexpr ChatForm ChatForm::conversation{"conversation"};
inline constexpr ChatForm ChatForm::pair{"pair"};
inline constexpr ChatForm ChatForm::prompt{"prompt"};
inline constexpr ChatForm ChatForm::request{"request"};

/// A record form of chats: a value of `pack --format`.
struct RecordForm {
  std::string_view name;
  ChatForm chats;         // the kinds of data sets that hold these records
  std::string_view keys;  // an example of the fields, for help and errors

  /// Returns true if the record has the fields of this form.
  bool (*recognizes)(const simdjson::dom::object& record);
  /// Appends the conversations of the record. Throws chat_json::InvalidRecord.
  void (*read)(chat_json::RecordReader& reader, const simdjson::dom::object& record,
               std::vector<Conversation>& conversations);
  /// Returns true if a record has this form and no other one, which messages about records of
  /// another kind say. Null: `recognizes`.
  bool (*identifies)(const simdjson::dom::object& record) = nullptr;
  /// Returns true if a record with the fields of several forms has this one, so that no other kind
  /// of data set reads it without --format. Null: false for each record.
  bool (*claims)(const simdjson::dom::object& record) = nullptr;
};

/// Returns all rows. The first row with the chats of a kind is the default form of the kind.
std::span<const RecordForm> record_forms();
/// Returns the row with that name, or null.
const RecordForm* find_record_form(std::string_view name);
/// Returns the default form of these chats. They must not be a request.
const RecordForm& default_record_form(ChatForm chats);
/// Returns "messages, sharegpt": the names of the forms with these chats.
std::string record_form_names(ChatForm chats);

/// The records of one kind of data set.
struct RecordKind {
  std::string_view name;  // a value of `pack --kind`
  // SetContent::name of another kind, if its data sets have the same content; "": its own row.
  std::string_view stored_as = "";
  std::optional<ChatForm> form = {};  // none: plain text
  std::string_view keys;              // the usual keys, for help: {"text"}
  std::string_view noun;              // "conversation", for messages
  // Each entry is a comma-separated list of keys. A record with all of the keys has this form.
  std::span<const std::string_view> marks;
  std::string_view fields = "";  // the fields that a record has without --fields: "prompt,chosen"
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

/// Returns the form of the record among those with these chats, or null.
const RecordForm* recognize_record(const simdjson::dom::object& record, ChatForm chats);

/// Returns the end of an error message for a record without the fields of `kind`. It names the
/// known form of `record` and gives advice: "; it is a conversation ('messages'), which --kind sft
/// packs". Returns "" for an unknown form.
std::string describe_known_record(const simdjson::dom::object& record, const RecordKind& kind);

/// Like describe_known_record(). For an unknown form, it names the fields of the record and the
/// forms of the kind.
std::string describe_record_form(const simdjson::dom::object& record, const RecordKind& kind);

/// Returns advice for a message without a role, for example "; 'from' and 'value' are names of the
/// form sharegpt ...", otherwise "".
std::string describe_message_form(const simdjson::dom::object& message);

/// Returns advice for an unknown role, for example "; human is a name of the form sharegpt ...",
/// otherwise "".
std::string describe_foreign_role(std::string_view role);

}  // namespace chat_json
}  // namespace trireme::text
