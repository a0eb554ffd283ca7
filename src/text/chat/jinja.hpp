#pragma once
#include <string>

#include "text/chat/chatml.hpp"

/// The templates as Jinja: what transformers' apply_chat_template renders from these texts is, for
/// every conversation, what the functions of chat_template.hpp render. Variables besides messages:
/// tools, add_generation_prompt, bos_token, eos_token, and where the template has thoughts in its
/// generation prompt enable_thinking or open_thinking. Written for trim_blocks, lstrip_blocks or
/// neither.
namespace trireme {

std::string chatml_jinja(const ChatMlStyle& style);
std::string minimind_v1_jinja();
std::string minimind_v2_jinja();
std::string llama3_jinja();
std::string plain_jinja();

}  // namespace trireme
