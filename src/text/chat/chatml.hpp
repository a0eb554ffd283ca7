#pragma once
#include <string_view>

#include "text/chat/chat_template.hpp"

namespace trireme {

/// Which answers get a block of thoughts before their content.
enum class ThinkBlock {
  never,     // thoughts stay where the content has them
  if_given,  // those with reasoning_content
  always,    // every one, empty or not; thoughts are cut out of the content
  qwen3,     // after the last question: the last answer, and those with thoughts
};

/// What differs between the ChatML templates.
struct ChatMlStyle {
  std::string_view default_system;  // "" for none
  ThinkBlock think = ThinkBlock::never;
  // The empty block that closes the generation prompt: unless thinking is on, or only if it is off.
  bool prompt_thinks_by_default = true;
  bool prompt_has_block = true;
};

inline constexpr ChatMlStyle kMinimindV25{.default_system = "You are a helpful assistant"};
inline constexpr ChatMlStyle kMinimindV3{
    .default_system = "", .think = ThinkBlock::always, .prompt_thinks_by_default = false};
inline constexpr ChatMlStyle kPlainChatMl{
    .default_system = "", .think = ThinkBlock::if_given, .prompt_has_block = false};
inline constexpr ChatMlStyle kQwen3{.default_system = "", .think = ThinkBlock::qwen3};

RenderedChat render_chatml(const ChatMlStyle& style, const Conversation& conversation,
                           const RenderOptions& options);

}  // namespace trireme
