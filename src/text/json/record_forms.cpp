#include "text/json/record_forms.hpp"

#include <array>

#include "core/join.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::chat_json {
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

/// The names of the fields that are texts, each once, as "'question', 'answer'".
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

std::string describe_alpaca(std::string_view kind) {
  std::string text =
      cat("; it is an Alpaca record ('instruction', 'input', 'output'), a form that pack does not "
          "read: write it as ",
          kMessagesForm);
  if (kind == "sft")
    text += ", or give --fields instruction,output if 'input' is empty in every record";
  return text;
}

std::string describe_completion(const object& record, std::string_view kind) {
  if (has(record, "label")) {
    return cat(
        "; it is a KTO record ('prompt', 'completion', 'label'), a form that pack does not read: "
        "write the answers to train on as ",
        kMessagesForm, " for --kind sft, or pairs of answers as {\"prompt\", \"chosen\", ",
        "\"rejected\"} for --kind dpo");
  }
  if (is_text(record, "prompt") && is_text(record, "completion")) {
    return cat("; it is a record of prompt and completion: ",
               kind == "sft" ? "give --fields prompt,completion"
                             : "--kind sft --fields prompt,completion packs it");
  }
  return cat("; it is a record of prompt and completion, a form that pack does not read: write it ",
             "as ", kMessagesForm);
}

}  // namespace

std::string describe_record_form(const object& record, std::string_view kind) {
  if (kind != "dpo" && has(record, "chosen") && has(record, "rejected"))
    return "; it is a preference pair ('chosen', 'rejected'), which --kind dpo packs";
  for (const char* name : {"conversations", "messages"}) {
    if (kind != "sft" && has(record, name))
      return cat("; it is a conversation ('", name, "'), which --kind sft packs");
  }
  if (has(record, "instruction") && has(record, "output")) return describe_alpaca(kind);
  if (has(record, "prompt") && has(record, "completion")) return describe_completion(record, kind);
  if (kind != "pretrain" && is_text(record, "text"))
    return "; it is a text ('text'), which --kind pretrain packs";
  const std::vector<std::string> texts = text_fields(record);
  const std::size_t needed = kind == "sft" ? 2 : kind == "dpo" ? 3 : 1;
  if (texts.size() < needed || texts.size() > kMostNamed || kind == "pretrain") return "";
  return cat("; its texts are ", joined(texts, ", "),
             kind == "sft" ? ": name the two of a question and its answer, --fields QUESTION,ANSWER"
                           : ": name three of them as --fields PROMPT,CHOSEN,REJECTED");
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

}  // namespace trireme::chat_json
