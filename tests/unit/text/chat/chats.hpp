#pragma once
#include <string>
#include <utility>
#include <vector>

#include "text/chat/chat_template.hpp"

/// Conversations for the tests of src/text/chat.
namespace trireme::text::samples {

inline Conversation chat_of(const std::vector<std::pair<Role, std::string>>& turns) {
  Conversation conversation;
  for (const auto& [role, content] : turns) {
    ChatMessage message;
    message.role = role;
    message.content = content;
    conversation.messages.push_back(message);
  }
  return conversation;
}

/// Returns a question, a call with its two results, and the answer.
inline Conversation tool_chat() {
  using enum Role;
  Conversation chat = chat_of({{system, "Be brief."},
                               {user, "Sum?"},
                               {assistant, ""},
                               {tool, "3"},
                               {tool, "4"},
                               {assistant, "Seven."}});
  chat.tools = {R"({"name": "add"})", R"({"name": "sub"})"};
  chat.declares_tools = true;
  chat.messages[2].tool_calls = {{"add", R"({"a": 1})"}, {"sub", "{}"}};
  chat.messages[5].reasoning = "\neasy\n";
  return chat;
}

inline std::string text_in(const std::string& name, const Conversation& conversation,
                           const RenderOptions& options = {}) {
  return chat_template(name).render(conversation, options).text;
}

}  // namespace trireme::text::samples
