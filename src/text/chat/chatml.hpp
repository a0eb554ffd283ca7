#pragma once
#include <string>
#include <string_view>

#include "text/chat/chat_template.hpp"

namespace trireme::text {

/// Selects the answers that get a thought before their content.
enum class Thoughts {
  never,     // thoughts stay where the content has them
  if_given,  // answers with reasoning_content
  always,    // every answer, also with an empty thought; the thought is cut out of the content
  qwen3,     // after the last question: the last answer, and answers with a thought
};

/// The differences between the ChatML templates.
struct ChatMlStyle {
  std::string_view default_system;  // empty for none
  Thoughts think = Thoughts::never;
  // An empty thought closes the generation prompt: unless thinking is on (true), or only if
  // thinking is off (false).
  bool prompt_thinks_by_default = true;
  bool prompt_has_thoughts = true;
};

inline constexpr ChatMlStyle kMinimindV25{.default_system = "You are a helpful assistant"};
inline constexpr ChatMlStyle kMinimindV3{
    .default_system = "", .think = Thoughts::always, .prompt_thinks_by_default = false};
inline constexpr ChatMlStyle kPlainChatMl{
    .default_system = "", .think = Thoughts::if_given, .prompt_has_thoughts = false};
inline constexpr ChatMlStyle kQwen3{.default_system = "", .think = Thoughts::qwen3};

/// The text around the tools in Qwen2.5, Qwen3 and MiniMind. It is part of the format.
inline constexpr std::string_view kBeforeTools =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
inline constexpr std::string_view kAfterTools =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

RenderedChat render_chatml(const ChatMlStyle& style, const Conversation& conversation,
                           const RenderOptions& options);

/// Returns the style as a Jinja template that apply_chat_template of transformers renders exactly
/// like render_chatml. Variables besides messages: tools, add_generation_prompt, and
/// enable_thinking or open_thinking if the generation prompt can have thoughts. The template works
/// with trim_blocks, with lstrip_blocks and without both.
std::string chatml_jinja(const ChatMlStyle& style);

}  // namespace trireme::text
