#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.hpp"
#include "text/chat/conversation.hpp"
#include "text/json/unread_field.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {

/// Returns options with the BOS and EOS token of the tokenizer.
text::RenderOptions render_options(const text::Tokenizer& tokenizer);

/// Finds the parts of conversations that a chat template cannot write, such as the tools under
/// minimind-v2. The template omits them, so pack counts them with the fields that it does not read.
/// Immutable after construction.
class UnwrittenFields {
 public:
  /// Renders a conversation with each part to find out which of them `chat_template` writes.
  UnwrittenFields(const text::ChatTemplate& chat_template, const text::RenderOptions& options);

  /// Sets `fields` to the parts of the conversations of a record that are not written, each once,
  /// with names like "tool_calls (not written by --template plain)".
  void find(const std::vector<text::Conversation>& conversations,
            std::vector<text::UnreadField>& fields) const;

 private:
  struct Part {
    const char* name;
    bool (*is_in)(const text::Conversation& conversation);
  };

  static const std::vector<Part>& parts();

  std::vector<Part> unwritten_;
  std::string template_;
};

/// Returns the number of occurrences of `part` in the texts of a conversation.
std::uint64_t count_in(const text::Conversation& conversation, std::string_view part);

}  // namespace trireme::data_prep
