#pragma once
#include <string>
#include <string_view>

#include "text/chat/jinja_chat.hpp"

namespace trireme::text {

/// The chat format of a model that was not trained here.
struct OwnFormat {
  ChatTemplatePtr format = nullptr;
  std::string refusal = {};  // reason why the Jinja text cannot be used; "" if it can
};

/// Returns the format for the Jinja text of a model. `where` names the text in errors.
///
///   a named format   if it writes the same text for sample conversations. Samples with tools or
///                    thoughts count only if the Jinja text mentions them.
///   the Jinja text   otherwise
///   another format   if the Jinja text is not supported: the named format with the same markers
///                    (nearest_chat_template), or null if the markers are unknown
OwnFormat own_chat_format(const std::string& jinja, std::string_view where);

/// Returns the refusal and what is used instead, for a warning; "" without a refusal.
std::string refusal_note(const OwnFormat& own);

}  // namespace trireme::text
