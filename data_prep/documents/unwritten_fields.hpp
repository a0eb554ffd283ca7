#pragma once
#include <vector>

#include "text/chat/chat_template.hpp"
#include "text/json/unread_field.hpp"

namespace trireme {

/// Finds the parts of conversations that a chat template has no form for, such as the tools under
/// minimind-v2. A template leaves them out, so pack counts them with the fields that it does not
/// read. Immutable after construction.
class UnwrittenFields {
 public:
  /// Renders a conversation of all parts to learn which of them `chat_template` writes.
  explicit UnwrittenFields(const ChatTemplate& chat_template);

  /// Sets `fields` to the parts of a record's conversations that are not written, each once, named
  /// as "tool_calls (not written by --template plain)".
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
