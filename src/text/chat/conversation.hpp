#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

enum class Role { system, user, assistant, tool };
std::string_view role_name(Role role) noexcept;
std::optional<Role> role_from_name(std::string_view name) noexcept;

struct ToolCall {
  std::string name;
  std::string arguments;  // the text in the chat: the given string, or JSON
};

struct ChatMessage {
  Role role = Role::user;
  std::string content;                   // UTF-8, may be empty
  std::optional<std::string> reasoning;  // "reasoning_content"; none if absent or null
  std::vector<ToolCall> tool_calls;
  bool is_target = true;  // the answer of an assistant is a training target
};

/// The messages of a chat in order, and the tools that the model may call. The texts are untrusted:
/// only a template writes structure.
struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<std::string> tools;  // JSON of each tool, as Python's json.dumps writes it
  bool declares_tools = false;  // a tools field was present and not empty, even if it lists no tool
};

}  // namespace trireme::text
