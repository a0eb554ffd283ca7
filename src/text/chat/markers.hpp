#pragma once
#include <string_view>
#include <vector>

#include "text/chat/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace trireme::text {

/// Returns the markers of a chat format that the tokenizer does not have as added tokens, in the
/// order of the format. A model learns such a marker as ordinary text.
std::vector<std::string_view> missing_markers(const ChatTemplate& format,
                                              const Tokenizer& tokenizer);

}  // namespace trireme::text
