#include "data_prep/documents/unwritten_fields.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"

namespace trireme {
namespace {

constexpr const char* kProbe = "@probe@";

template <class Matches>
bool any_message(const Conversation& conversation, Matches matches) {
  return std::any_of(conversation.messages.begin(), conversation.messages.end(), matches);
}

bool has_tools(const Conversation& conversation) {
  return !conversation.tools.empty();
}

bool has_calls(const Conversation& conversation) {
  return any_message(conversation, [](const ChatMessage& one) { return !one.tool_calls.empty(); });
}

bool has_results(const Conversation& conversation) {
  return any_message(conversation, [](const ChatMessage& one) {
    return one.role == Role::tool && !one.content.empty();
  });
}

bool has_thoughts(const Conversation& conversation) {
  return any_message(conversation, [](const ChatMessage& one) {
    return one.role == Role::assistant && one.reasoning &&
           one.reasoning->find_first_not_of(" \t\r\n") != std::string::npos;
  });
}

bool has_late_system(const Conversation& conversation) {
  return std::any_of(
      conversation.messages.begin() + 1, conversation.messages.end(),
      [](const ChatMessage& one) { return one.role == Role::system && !one.content.empty(); });
}

ChatMessage said(Role role, std::string content) {
  ChatMessage message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

/// Returns the shortest conversation that contains the probe in the given part.
Conversation probe_of(std::size_t part) {
  Conversation conversation;
  conversation.messages = {said(Role::user, "q"), said(Role::assistant, "a")};
  ChatMessage& answer = conversation.messages.back();
  if (part == 0) conversation.tools = {kProbe};
  if (part == 1) answer.tool_calls = {{"f", kProbe}};
  if (part == 2)
    conversation.messages.insert(conversation.messages.end() - 1, said(Role::tool, kProbe));
  if (part == 3) answer.reasoning = kProbe;
  if (part == 4)
    conversation.messages.insert(conversation.messages.end() - 1, said(Role::system, kProbe));
  return conversation;
}

}  // namespace

const std::vector<UnwrittenFields::Part>& UnwrittenFields::parts() {
  static const std::vector<Part> parts{
      {"tools", has_tools},
      {"tool_calls", has_calls},
      {"messages of role tool", has_results},
      {"reasoning_content", has_thoughts},
      {"system messages after the first message", has_late_system}};
  return parts;
}

UnwrittenFields::UnwrittenFields(const ChatTemplate& chat_template)
    : template_(chat_template.name) {
  for (std::size_t part = 0; part < parts().size(); ++part) {
    const RenderedChat rendered = chat_template.render(probe_of(part), {});
    if (rendered.text.find(kProbe) == std::string::npos) unwritten_.push_back(parts()[part]);
  }
}

void UnwrittenFields::find(const std::vector<Conversation>& conversations,
                           std::vector<UnreadField>& fields) const {
  fields.clear();
  for (const Part& part : unwritten_) {
    if (std::any_of(conversations.begin(), conversations.end(), part.is_in))
      fields.push_back(
          {formatted("{} (not written by --template {})", part.name, template_), true});
  }
}

}  // namespace trireme
