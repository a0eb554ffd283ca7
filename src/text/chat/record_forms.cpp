#include "text/chat/record_forms.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/join.hpp"
#include "text/json/json_fields.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr std::array<std::string_view, 1> kTextMarks{"text"};
constexpr std::array<std::string_view, 2> kConversationMarks{"conversations", "messages"};
constexpr std::array<std::string_view, 1> kPairMarks{"chosen,rejected"};

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
};

}  // namespace

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

bool has(const object& record, std::string_view key) {
  return find_value(record, key).has_value();
}

bool is_text(const object& record, std::string_view key) {
  const auto value = find_value(record, key);
  return value && value->is_string();
}

/// Returns the quoted names of the string fields without duplicates: "'question'", "'answer'".
std::vector<std::string> text_fields(const object& record) {
  std::vector<std::string> names;
  for (const auto& member : record) {
    std::string name = "'";
    append_lossy_utf8(std::string_view(member.key).substr(0, kMostNameBytes), name);
    name += '\'';
    if (member.value.is_string() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  return names;
}

std::string describe_alpaca(const object& /*record*/, const RecordKind& kind) {
  std::string text =
      cat("; it is an Alpaca record ('instruction', 'input', 'output'), a form that pack does not "
          "read: write it as ",
          kMessagesForm);
  if (kind.form == ChatForm::conversation)
    text += ", or give --fields instruction,output if 'input' is empty in every record";
  return text;
}

std::string describe_kto(const object& /*record*/, const RecordKind& /*kind*/) {
  return cat(
      "; it is a KTO record ('prompt', 'completion', 'label'), a form that pack does not read: "
      "write the answers to train on as ",
      kMessagesForm, " for --kind ", record_kind(ChatForm::conversation).name,
      ", or pairs of answers as {\"prompt\", \"chosen\", \"rejected\"} for --kind ",
      record_kind(ChatForm::pair).name);
}

std::string describe_completion(const object& record, const RecordKind& kind) {
  if (is_text(record, "prompt") && is_text(record, "completion")) {
    return cat("; it is a record of prompt and completion: ",
               kind.form == ChatForm::conversation
                   ? "give --fields prompt,completion"
                   : cat("--kind ", record_kind(ChatForm::conversation).name,
                         " --fields prompt,completion packs it"));
  }
  return cat("; it is a record of prompt and completion, a form that pack does not read: write it ",
             "as ", kMessagesForm);
}

/// A known record form that no kind of data set reads.
struct UnreadForm {
  std::string_view marks;  // keys, as in RecordKind::marks
  std::string (*describe)(const object& record, const RecordKind& kind);
};

constexpr std::array kUnreadForms{
    UnreadForm{"instruction,output", describe_alpaca},
    UnreadForm{"prompt,completion,label", describe_kto},
    UnreadForm{"prompt,completion", describe_completion},
};

/// Returns true if the record has all of these keys. With `as_text`, their values must be strings.
bool has_marks(const object& record, std::string_view marks, bool as_text = false) {
  const std::vector<std::string> keys = split(marks, ',');
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    return as_text ? is_text(record, key) : has(record, key);
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

}  // namespace

std::string describe_record_form(const object& record, const RecordKind& kind) {
  std::string chat = describe_other_kind(record, kind, true);
  if (!chat.empty()) return chat;
  for (const UnreadForm& form : kUnreadForms)
    if (has_marks(record, form.marks)) return form.describe(record, kind);
  std::string text = describe_other_kind(record, kind, false);
  if (!text.empty()) return text;
  const std::vector<std::string> texts = text_fields(record);
  if (texts.size() < kind.num_names || texts.size() > kMostNamed || kind.num_names == 0) return "";
  return cat("; its texts are ", joined(texts, ", "), ": ", kind.names_advice);
}

std::string describe_message_form(const object& message) {
  if (!has(message, "from") || !has(message, "value")) return "";
  return cat(
      "; 'from' and 'value' are ShareGPT's names, a form that pack does not read: write ",
      R"({"from": "human", "value": ".."} as {"role": "user", "content": ".."}, and gpt as )",
      "assistant");
}

std::string describe_foreign_role(std::string_view role) {
  constexpr std::array<std::string_view, 5> kAnswers{"gpt", "chatgpt", "bing", "model", "ai"};
  std::string_view known;
  if (role == "human") known = "user";
  if (role == "observation" || role == "ipython") known = "tool";
  if (std::find(kAnswers.begin(), kAnswers.end(), role) != kAnswers.end()) known = "assistant";
  return known.empty() ? ""
                       : cat("; the roles of ShareGPT are not read: write ", role, " as ", known);
}

}  // namespace chat_json
}  // namespace trireme::text
