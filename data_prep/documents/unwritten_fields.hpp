#pragma once
#include <vector>

#include "text/chat/chat_template.hpp"
#include "text/json/unread_field.hpp"

namespace trireme {

/// Finds the parts of conversations that a chat template cannot write, such as the tools under
/// minimind-v2. The template omits them, so pack counts them with the fields that it does not read.
/// Immutable after construction.
class UnwrittenFields {
 public:
  /// Renders a conversation with all parts to find out which of them `chat_template` writes.
  explicit UnwrittenFields(const ChatTemplate& chat_template);

  /// Sets `fields` to the parts of the conversations of a record that are not written, each once,
  /// with names like "tool_calls (not written by --template plain)".
  void find(const std::vector<Conversation>& conversations, std::vector<UnreadField>& fields) const;

 private:
  struct Part {
    const char* name;
    bool (*is_in)(const Conversation& conversation);
  };

  static const std::vector<Part>& parts();

  std::vector<Part> unwritten_;
  const char* template_;
};

}  // namespace trireme
