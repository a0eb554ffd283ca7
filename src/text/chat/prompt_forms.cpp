#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/chat/record_reader.hpp"

/// The record form of prompts for reinforcement learning. Sources: MiniMind's rlaif.jsonl and
/// agent_rl.jsonl, the prompt-only format of TRL.
namespace trireme::text::chat_json {
namespace {

constexpr std::array<std::string_view, 3> kPromptLists{"conversations", "messages", "prompt"};

/// Returns the name of the field that holds the prompt; "" if there is none.
std::string_view prompt_field(const object& record) {
  const auto* found = std::find_if(kPromptLists.begin(), kPromptLists.end(),
                                   [&](auto name) { return find_value(record, name).has_value(); });
  return found == kPromptLists.end() ? "" : *found;
}

/// Returns the messages without the last one if that is an answer.
Conversation read_prompt_list(RecordReader& reader, const element& value, std::string_view name) {
  Conversation conversation = reader.messages().read_list(value, name);
  if (conversation.messages.back().role == Role::assistant) conversation.messages.pop_back();
  if (conversation.messages.empty())
    refuse("field '", name, "' has no message before its last answer");
  return conversation;
}

}  // namespace

bool has_rl_prompt(const object& record) {
  return !prompt_field(record).empty();
}

bool has_only_rl_prompt(const object& record) {
  if (has_messages(record) || has_sharegpt(record)) return true;
  constexpr std::array<std::string_view, 8> kOtherForms{
      "completion", "chosen", "rejected", "response", "answer", "output", "text", "label"};
  return find_value(record, "prompt") &&
         std::none_of(kOtherForms.begin(), kOtherForms.end(),
                      [&](auto name) { return find_value(record, name).has_value(); });
}

void read_rl_prompt(RecordReader& reader, const object& record, std::vector<Conversation>& into) {
  const std::string_view name = prompt_field(record);
  if (name.empty()) {
    for (const std::string_view given : kPromptLists)
      if (find(record, given)) refuse_missing(record, given);
    refuse("no field 'conversations' (nor 'messages', nor 'prompt')",
           describe_record_form(record, record_kind(reader.chats())));
  }
  for (const std::string_view other : kPromptLists)
    if (other != name && find_value(record, other))
      refuse("fields '", name, "' and '", other, "' are both present, must be only one of them");
  const element value = *find_value(record, name);
  if (name == "prompt" && value.is_string()) {
    into.emplace_back().messages.push_back(
        message_of(Role::user, reader.text_field(record, "prompt")));
  } else {
    into.push_back(read_prompt_list(reader, value, name));
  }
  reader.read_tools(record, into[0]);
  reader.add_system(record, into);
}

}  // namespace trireme::text::chat_json
