#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/unread_field.hpp"

namespace trireme {

/// Why an object is no record.
struct ChatProblem {
  std::string reason;  // "message 2: unknown role 'bot', must be system, user, assistant or tool"
  bool bad_text = false;  // a lone surrogate or invalid UTF-8, which a repair may mend
};

/// Reads conversations from JSON objects. Reused for many; not shared between threads.
///
/// A message is {"role", "content"} and may have:
///   "reasoning_content"  of an assistant
///   "tool_calls"         of an assistant: a list, as JSON or as a text that holds JSON. A call is
///                        {"name", "arguments"}, or an object whose "function" is one. Arguments
///                        that are a text must be JSON, except in a request. "function_call" is the
///                        older form of one call.
///   "tools"              of a system message: a list as JSON or as a text that holds JSON
///   "weight", "train"    of an assistant: 0 or false switches training on this answer off. Any
///                        value but 0, 1, false and true is refused, whoever speaks.
/// Role developer is read as system, role function as tool. Tools come from the last system message
/// that has some, else from a field "tools" beside the messages. A text in a field "system" beside
/// the messages is a first system message; beside a message of that role it is refused. What is
/// written into a chat as JSON is laid out as Python's json.dumps does it. Content may be null only
/// beside a thought or a call; a list of parts {"type": "text", "text"} is their texts, a line each,
/// and parts of other types are refused. A conversation must have an answer. Of equal keys the last
/// counts; fields that are not named here are not read, and unread() lists them. Numbers are read as
/// Python's json reads them, so also integers beyond 64 bits, 1e999, NaN and Infinity.
/// Source: MiniMind's data sets, OpenAI's chat API.
class ChatReader {
 public:
  /// `fields`: none, or names of fields that are read in place of the usual ones: two texts, the
  /// user's and the assistant's (conversation); prompt, chosen, rejected (pair).
  explicit ChatReader(ChatForm form, std::vector<std::string> fields = {});
  ChatReader(ChatReader&&) noexcept;
  ChatReader& operator=(ChatReader&&) noexcept;
  ChatReader(const ChatReader&) = delete;
  ChatReader& operator=(const ChatReader&) = delete;
  ~ChatReader();

  /// Reads one object; 64 more bytes must be readable after its `size` bytes. On success
  /// `conversations` holds one (conversation) or two (chosen, rejected).
  std::optional<ChatProblem> read(const char* json, std::size_t size,
                                  std::vector<Conversation>& conversations);

  /// The fields of the last record that hold something and were not read, by name, each once; none
  /// if the record was refused or is a request.
  [[nodiscard]] const std::vector<UnreadField>& unread() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
