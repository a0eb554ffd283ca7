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
namespace chat_json {

// The functions of the rows, in the files named *_forms.cpp.
bool has_messages(const object& record);
bool has_sharegpt(const object& record);
bool has_alpaca(const object& record);
bool has_prompt_completion(const object& record);
bool has_preference(const object& record);
bool has_label(const object& record);
bool has_labeled_text(const object& record);
bool has_rl_prompt(const object& record);
bool has_only_rl_prompt(const object& record);
void read_alpaca(RecordReader& reader, const object& record, std::vector<Conversation>& into);
void read_prompt_completion(RecordReader& reader, const object& record,
                            std::vector<Conversation>& into);
void read_preference(RecordReader& reader, const object& record, std::vector<Conversation>& into);
void read_labeled(RecordReader& reader, const object& record, std::vector<Conversation>& into);
void read_rl_prompt(RecordReader& reader, const object& record, std::vector<Conversation>& into);

}  // namespace chat_json

namespace {

/// Two conversations. One ends with a labeled answer, and the other is only the prompt of it. The
/// chosen one, which comes first, has a desirable answer, and the rejected one an undesirable answer.
constexpr ChatForm kAnswer{"answer"};

constexpr std::array<std::string_view, 1> kTextMarks{"text"};
constexpr std::array<std::string_view, 2> kConversationMarks{"conversations", "messages"};
constexpr std::array<std::string_view, 1> kPairMarks{"chosen,rejected"};
constexpr std::array<std::string_view, 6> kAnswerMarks{
    "prompt,completion,label", "messages,label",        "messages,kto_tag",
    "conversations,label",     "conversations,kto_tag", "instruction,output,kto_tag"};
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
    RecordForm{.name = "kto",
               .chats = kAnswer,
               .keys = R"({"prompt", "completion", "label"})",
               .recognizes = chat_json::has_label,
               .read = chat_json::read_labeled,
               .claims = chat_json::has_labeled_text},
    RecordForm{.name = "rl",
               .chats = ChatForm::prompt,
               .keys = R"({"messages": [{"role", "content"}], "tools", "gt"})",
               .recognizes = chat_json::has_rl_prompt,
               .read = chat_json::read_rl_prompt,
               .identifies = chat_json::has_only_rl_prompt},
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
               .fields = "prompt,chosen,rejected",
               .names = "PROMPT,CHOSEN,REJECTED",
               .num_names = 3,
               .names_refusal = "three names, PROMPT,CHOSEN,REJECTED",
               .names_advice = "name three of them as --fields PROMPT,CHOSEN,REJECTED"},
    RecordKind{.name = "kto",
               .form = kAnswer,
               .keys = R"({"prompt", "completion", "label"})",
               .noun = "labeled answer",
               .marks = kAnswerMarks,
               .fields = "prompt,completion,label",
               .names = "PROMPT,COMPLETION,LABEL",
               .num_names = 3,
               .names_refusal = "three names, PROMPT,COMPLETION,LABEL",
               .names_advice = "name three of them as --fields PROMPT,COMPLETION,LABEL"},
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

/// Returns true if the record has this form and no form of another kind claims it.
bool has_form(const object& record, const RecordForm& wanted) {
  const auto claimed = [&](const RecordForm& form) {
    return form.chats != wanted.chats && form.claims != nullptr && form.claims(record);
  };
  return wanted.recognizes(record) && std::none_of(kForms.begin(), kForms.end(), claimed);
}

/// Returns "; it has the form alpaca, which --kind sft packs" for a record of the table of forms.
std::string describe_known_form(const object& record) {
  for (const RecordForm& form : kForms) {
    if (form.identifies != nullptr ? form.identifies(record) : has_form(record, form))
      return cat("; it has the form ", form.name, ", which --kind ", record_kind(form.chats).name,
                 " packs");
  }
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
    return form.chats == chats && has_form(record, form);
  });
  return found == kForms.end() ? nullptr : found;
}

std::string describe_known_record(const object& record, const RecordKind& kind) {
  const std::string chat = describe_other_kind(record, kind, true);
  if (!chat.empty()) return chat;
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
