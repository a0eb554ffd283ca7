#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "text/chat/chat_template.hpp"

namespace trireme::text {

/// A chat format, either a named one or one made from a Jinja template. Shared by the model and its
/// writers.
using ChatTemplatePtr = std::shared_ptr<const ChatTemplate>;

/// The value of --template for the Jinja template of the tokenizer.
inline constexpr std::string_view kTokenizerTemplate = "tokenizer";

/// Returns the Jinja text of a tokenizer's chat template: chat_template.jinja, else `chat_template`
/// of tokenizer_config.json (a text, or the entry "default" of a list); "" if there is none.
/// Throws Error(data) for a tokenizer_config.json that is not JSON.
std::string jinja_of_tokenizer(const std::map<std::string, std::string>& files);

/// Returns "custom-" and 12 hex digits of the XXH3-128 hash of a Jinja template. Data sets and
/// checkpoints name the template like this.
std::string custom_template_name(std::string_view jinja);

/// Returns a named format. Throws like chat_template().
ChatTemplatePtr shared_chat_template(std::string_view name);

/// Makes a chat format from a Jinja template. A text that is the Jinja text of a named format gives
/// the named format. `where` names the template in errors.
///
/// The answers of a conversation are found in this way:
///   {% generation %}   the text of each block. A token that touches the text is a target, as with
///                      return_assistant_tokens_mask of `transformers`.
///   otherwise          the template renders the conversation before the answer, with the header of
///                      the answer, and the conversation with the answer. Both texts must be the
///                      beginning of the whole text.
/// render() throws Error(data) if this is not the case, or if the template refuses the conversation.
/// Throws Error(data) with line and column if the template has a construct that is not supported.
ChatTemplatePtr jinja_chat_template(const std::string& jinja, std::string_view where);

}  // namespace trireme::text
