#include "text/chat/record_forms.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/error.hpp"
#include "core/join.hpp"
#include "text/chat/record_reader.hpp"
#include "text/json/json_fields.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr std::array<std::string_view, 1> kTextMarks{"text"};
constexpr std::array<std::string_view, 2> kConversationMarks{"conversations", "messages"};
constexpr std::array<std::string_view, 1> kPairMarks{"chosen,rejected"};
constexpr std::array<std::string_view, 3> kPromptMarks{"prompt,gt", "messages,gt",
                                                       "conversations,gt"};

/// Rows with the same chats stand in the order in which a record is compared with them.
constexpr std::array kForms{
    RecordForm{.name = "messages",
               .chats = ChatForm::conversation,
               .keys = R"({"messages": [{"role", "content"}]})",
               .recognizes = chat_json::has_messages,
               .read = chat_json::read_messages},
    RecordForm{.name = "sharegpt",
               .chats = ChatForm::conversation,
               .keys = R"({"conversations": [{"from", "value"}], "system", "tools"})",
               .recognizes = chat_json::has_sharegpt,
               .read = chat_json::read_messages},
    RecordForm{.name = "alpaca",
               .chats = ChatForm::conversation,
               .keys = R"({"instruction", "input", "output", "system", "history"})",
               .recognizes = chat_json::has_alpaca,
               .read = chat_json::read_alpaca},
    RecordForm{.name = "prompt-completion",
               .chats = ChatForm::conversation,
               .keys = R"({"prompt", "completion"})",
               .recognizes = chat_json::has_prompt_completion,
               .read = chat_json::read_prompt_completion},
    RecordForm{.name = "preference",
               .chats = ChatForm::pair,
               .keys = R"({"prompt", "chosen", "rejected"})",
               .recognizes = chat_json::has_preference,
               .read = chat_json::read_preference},
    RecordForm{.name = "rl",
               .chats = ChatForm::prompt,
               .keys = R"({"messages": [{"role", "content"}], "tools", "gt"})",
               .recognizes = chat_json::has_rl_prompt,
               .read = chat_json::read_rl_prompt},
};

constexpr std::array kKinds{
    RecordKind{.name = "pretrain", .keys = R"({"text"})", .noun = "text", .marks = kTextMarks},
    RecordKind{
        .name = "sft",
        .form = ChatForm::conversation,
        .keys = R"({"conversations"})",
        .noun = "conversation",
        .marks = kConversationMarks,
        .names = "USER,ASSISTANT",
        .num_names = 2,
        .names_help = ", the fields of a record of two texts",
        .names_refusal = "two names, USER,ASSISTANT: --fields question,answer",
        .names_advice = "name the two of a question and its answer, --fields QUESTION,ANSWER"},
    RecordKind{.name = "dpo",
               .form = ChatForm::pair,
               .keys = R"({"chosen", "rejected"})",
               .noun = "preference pair",
               .marks = kPairMarks,
               .names = "PROMPT,CHOSEN,REJECTED",
               .num_names = 3,
               .names_refusal = "three names, PROMPT,CHOSEN,REJECTED",
               .names_advice = "name three of them as --fields PROMPT,CHOSEN,REJECTED"},
    RecordKind{.name = "rl",
               .form = ChatForm::prompt,
               .keys = R"({"messages", "gt"})",
               .noun = "prompt with its expected texts",
               .marks = kPromptMarks},
};

}  // namespace

std::span<const RecordForm> record_forms() {
  return kForms;
}

const RecordForm* find_record_form(std::string_view name) {
  const auto* found = std::find_if(kForms.begin(), kForms.end(),
                                   [&](const RecordForm& form) { return form.name == name; });
  return found == kForms.end() ? nullptr : found;
}

const RecordForm& default_record_form(ChatForm chats) {
  const auto* found = std::find_if(kForms.begin(), kForms.end(),
                                   [&](const RecordForm& form) { return form.chats == chats; });
  TRIREME_ASSERT(found != kForms.end());
  return *found;
}

std::string record_form_names(ChatForm chats) {
  std::vector<std::string_view> names;
  for (const RecordForm& form : kForms)
    if (form.chats == chats) names.push_back(form.name);
  return joined(names, ", ");
}

std::span<const RecordKind> record_kinds() {
  return kKinds;
}

const RecordKind* find_record_kind(std::string_view name) {
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const RecordKind& kind) { return kind.name == name; });
  return found == kKinds.end() ? nullptr : found;
}

const RecordKind& record_kind(std::optional<ChatForm> form) {
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const RecordKind& kind) { return kind.form == form; });
  TRIREME_ASSERT(found != kKinds.end());
  return *found;
}

std::string chat_kind_names(std::string_view last, std::optional<ChatForm> form) {
  std::vector<std::string_view> names;
  for (const RecordKind& kind : kKinds)
    if (kind.form && (!form || kind.form == form)) names.push_back(kind.name);
  const std::string_view last_name = names.back();
  names.pop_back();
  return names.empty() ? std::string(last_name) : cat(joined(names, ", "), last, last_name);
}

namespace chat_json {
namespace {

constexpr std::size_t kMostNamed = 6;
constexpr std::size_t kMostNameBytes = 60;

bool is_text(const object& record, std::string_view key) {
  const auto value = find_value(record, key);
  return value && value->is_string();
}

/// Returns the quoted names of the fields without duplicates: "'question'", "'answer'". With
/// `texts`, returns only the strings.
std::vector<std::string> field_names(const object& record, bool texts) {
  std::vector<std::string> names;
  for (const auto& member : record) {
    std::string name = "'";
    append_lossy_utf8(std::string_view(member.key).substr(0, kMostNameBytes), name);
    name += '\'';
    if ((!texts || member.value.is_string()) &&
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  return names;
}

std::string describe_kto() {
  return cat(
      "; it is a KTO record ('prompt', 'completion', 'label'), a form that pack does not read: "
      "write the answers to train on as ",
      kMessagesForm, " for --kind ", record_kind(ChatForm::conversation).name,
      ", or pairs of answers as {\"prompt\", \"chosen\", \"rejected\"} for --kind ",
      record_kind(ChatForm::pair).name);
}

/// A known record form that no kind of data set reads.
struct UnreadForm {
  std::string_view marks;  // keys, as in RecordKind::marks
  std::string (*describe)();
};

constexpr std::array kUnreadForms{
    UnreadForm{"prompt,completion,label", describe_kto},
    UnreadForm{"instruction,output,kto_tag", describe_kto},
};

/// Returns true if the record has all of these keys. With `as_text`, their values must be strings.
bool has_marks(const object& record, std::string_view marks, bool as_text = false) {
  const std::vector<std::string> keys = split(marks, ',');
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    return as_text ? is_text(record, key) : find_value(record, key).has_value();
  });
}

/// Returns "; it is a conversation ('messages'), which --kind sft packs" for a record of another
/// kind, otherwise "".
std::string describe_other_kind(const object& record, const RecordKind& wanted, bool chats) {
  // Later kinds have more specific keys, so begin with the last one.
  for (auto row = kKinds.rbegin(); row != kKinds.rend(); ++row) {
    const RecordKind& kind = *row;
    if (kind.name == wanted.name || kind.form.has_value() != chats) continue;
    for (const std::string_view marks : kind.marks) {
      if (!has_marks(record, marks, !chats)) continue;
      return cat("; it is a ", kind.noun, " ('", joined(split(marks, ','), "', '"),
                 "'), which --kind ", kind.name, " packs");
    }
  }
  return "";
}

/// Returns "; it has the form alpaca, which --kind sft packs" for a record of the table of forms.
std::string describe_known_form(const object& record) {
  for (const RecordForm& form : kForms)
    if (form.recognizes(record))
      return cat("; it has the form ", form.name, ", which --kind ", record_kind(form.chats).name,
                 " packs");
  return "";
}

/// Returns "; its fields are 'a', 'b'; the forms of --kind sft are messages (..), ..".
/// Returns "" for a kind of texts: --field names the field of a text.
std::string describe_unknown(const object& record, const RecordKind& kind) {
  if (!kind.form) return "";
  const std::vector<std::string> texts = field_names(record, true);
  std::vector<std::string> fields = field_names(record, false);
  const std::size_t more = fields.size() - std::min(fields.size(), kMostNamed);
  fields.resize(fields.size() - more);
  std::string text =
      fields.empty() ? "; it has no field" : cat("; its fields are ", joined(fields, ", "));
  if (more != 0) text += formatted(" and {} more", more);
  const auto shown = [&](const RecordForm& form) { return cat(form.name, " ", form.keys); };
  std::vector<RecordForm> forms;
  std::copy_if(kForms.begin(), kForms.end(), std::back_inserter(forms),
               [&](const RecordForm& form) { return form.chats == kind.form; });
  text += cat(forms.size() == 1 ? "; the form of --kind " : "; the forms of --kind ", kind.name,
              forms.size() == 1 ? " is " : " are ", joined(forms, ", ", shown));
  if (kind.num_names != 0 && texts.size() >= kind.num_names && texts.size() <= kMostNamed)
    text += cat("; its texts are ", joined(texts, ", "), ": ", kind.names_advice);
  return text;
}

}  // namespace

const RecordForm* recognize_record(const object& record, ChatForm chats) {
  const auto* found = std::find_if(kForms.begin(), kForms.end(), [&](const RecordForm& form) {
    return form.chats == chats && form.recognizes(record);
  });
  return found == kForms.end() ? nullptr : found;
}

std::string describe_known_record(const object& record, const RecordKind& kind) {
  const std::string chat = describe_other_kind(record, kind, true);
  if (!chat.empty()) return chat;
  for (const UnreadForm& form : kUnreadForms)
    if (has_marks(record, form.marks)) return form.describe();
  const std::string known = describe_known_form(record);
  if (!known.empty()) return known;
  return describe_other_kind(record, kind, false);
}

std::string describe_record_form(const object& record, const RecordKind& kind) {
  const std::string known = describe_known_record(record, kind);
  return known.empty() ? describe_unknown(record, kind) : known;
}

std::string describe_message_form(const object& message) {
  if (!find_value(message, "from") || !find_value(message, "value")) return "";
  return "; 'from' and 'value' are names of the form sharegpt. All messages of a record must have "
         "the names of its first message";
}

std::string describe_foreign_role(std::string_view role) {
  constexpr std::array<std::string_view, 5> kAnswers{"gpt", "chatgpt", "bing", "model", "ai"};
  std::string_view known;
  if (role == "human") known = "user";
  if (role == "observation" || role == "ipython") known = "tool";
  if (std::find(kAnswers.begin(), kAnswers.end(), role) != kAnswers.end()) known = "assistant";
  return known.empty() ? ""
                       : cat("; ", role,
                             " is a name of the form sharegpt, which has 'from' and "
                             "'value': write ",
                             role, " as ", known);
}

}  // namespace chat_json
}  // namespace trireme::text
