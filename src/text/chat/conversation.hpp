#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Role { system, user, assistant, tool };

/// "system", "user", "assistant" or "tool".
std::string_view role_name(Role role) noexcept;
std::optional<Role> role_from_name(std::string_view name) noexcept;

struct ToolCall {
  std::string name;
  std::string arguments;  // as it is written into the chat: the text given, or JSON
};

struct ChatMessage {
  Role role = Role::user;
  std::string content;                   // UTF-8, may be empty
  std::optional<std::string> reasoning;  // "reasoning_content"; none if it is absent or null
  std::vector<ToolCall> tool_calls;
  bool is_target = true;  // of an assistant: its answer is trained
};

/// Messages in order, and what the model may call. Nothing in it is trusted: a template decides
/// what is structure, and these texts never become structure.
struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<std::string> tools;  // each the JSON of one tool, as Python's json.dumps writes it
  bool declares_tools = false;     // a tools field was there and not empty, even if it lists none
};

}  // namespace trireme
