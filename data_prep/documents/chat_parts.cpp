#include "data_prep/documents/chat_parts.hpp"

#include <algorithm>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "data_prep/documents/jsonl_record.hpp"

namespace trireme::data_prep {
namespace {

constexpr const char* kProbe = "@probe@";

template <class Matches>
bool any_message(const text::Conversation& conversation, Matches matches) {
  return std::any_of(conversation.messages.begin(), conversation.messages.end(), matches);
}

bool has_tools(const text::Conversation& conversation) {
  return !conversation.tools.empty();
}

bool has_calls(const text::Conversation& conversation) {
  return any_message(conversation,
                     [](const text::ChatMessage& one) { return !one.tool_calls.empty(); });
}

bool has_results(const text::Conversation& conversation) {
  return any_message(conversation, [](const text::ChatMessage& one) {
    return one.role == text::Role::tool && !one.content.empty();
  });
}

bool has_thoughts(const text::Conversation& conversation) {
  return any_message(conversation, [](const text::ChatMessage& one) {
    return one.role == text::Role::assistant && one.reasoning &&
           one.reasoning->find_first_not_of(" \t\r\n") != std::string::npos;
  });
}

bool has_late_system(const text::Conversation& conversation) {
  return std::any_of(conversation.messages.begin() + 1, conversation.messages.end(),
                     [](const text::ChatMessage& one) {
                       return one.role == text::Role::system && !one.content.empty();
                     });
}

text::ChatMessage said(text::Role role, std::string content) {
  text::ChatMessage message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

/// Returns the shortest conversation that contains the probe in the given part.
text::Conversation probe_of(std::size_t part) {
  text::Conversation conversation;
  conversation.messages = {said(text::Role::user, "q"), said(text::Role::assistant, "a")};
  text::ChatMessage& answer = conversation.messages.back();
  if (part == 0) conversation.tools = {kProbe};
  if (part == 1) answer.tool_calls = {{"f", kProbe}};
  if (part == 2)
    conversation.messages.insert(conversation.messages.end() - 1, said(text::Role::tool, kProbe));
  if (part == 3) answer.reasoning = kProbe;
  if (part == 4)
    conversation.messages.insert(conversation.messages.end() - 1, said(text::Role::system, kProbe));
  return conversation;
}

}  // namespace

text::RenderOptions render_options(const text::Tokenizer& tokenizer) {
  text::RenderOptions options;
  if (const auto id = tokenizer.bos_id()) options.begin_token = tokenizer.token_content(*id);
  if (const auto id = tokenizer.eos_id()) options.end_token = tokenizer.token_content(*id);
  return options;
}

UnwrittenFields::UnwrittenFields(const text::ChatTemplate& chat_template,
                                 const text::RenderOptions& options)
    : template_(chat_template.name) {
  for (std::size_t part = 0; part < parts().size(); ++part) {
    bool is_written = true;
    // A Jinja template may refuse a conversation; then it refuses such a record, too.
    if (!comm::capture([&] {
          const text::RenderedChat rendered = chat_template.render(probe_of(part), options);
          is_written = rendered.text.find(kProbe) != std::string::npos;
        }) &&
        !is_written)
      unwritten_.push_back(parts()[part]);
  }
}

void UnwrittenFields::find(const std::vector<text::Conversation>& conversations,
                           std::vector<text::UnreadField>& fields) const {
  fields.clear();
  for (const Part& part : unwritten_) {
    if (std::any_of(conversations.begin(), conversations.end(), part.is_in))
      fields.push_back(
          {formatted("{} (not written by --template {})", part.name, template_), true});
  }
}

const std::vector<UnwrittenFields::Part>& UnwrittenFields::parts() {
  static const std::vector<Part> parts{
      {"tools", has_tools},
      {"tool_calls", has_calls},
      {"messages of role tool", has_results},
      {"reasoning_content", has_thoughts},
      {"system messages after the first message", has_late_system}};
  return parts;
}

std::uint64_t count_in(const text::Conversation& conversation, std::string_view part) {
  std::uint64_t sum = 0;
  for (const std::string& tool : conversation.tools) sum += occurrences(part, tool);
  for (const text::ChatMessage& message : conversation.messages) {
    sum += occurrences(part, message.content);
    if (message.reasoning) sum += occurrences(part, *message.reasoning);
    for (const text::ToolCall& call : message.tool_calls)
      sum += occurrences(part, call.name) + occurrences(part, call.arguments);
  }
  return sum;
}

}  // namespace trireme::data_prep
