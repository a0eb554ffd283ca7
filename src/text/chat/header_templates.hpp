#pragma once
#include <string>
#include <string_view>

#include "text/chat/chat_template.hpp"

/// Render functions and Jinja texts (jinja.cpp) of the templates that are not ChatML. See
/// ChatTemplate for the formats.
namespace trireme::text {

/// The default system message of minimind-v2.
inline constexpr std::string_view kMinimindV2System = "你是 MiniMind，是一个有用的人工智能助手。";

RenderedChat render_minimind_v1(const Conversation& conversation, const RenderOptions& options);
RenderedChat render_minimind_v2(const Conversation& conversation, const RenderOptions& options);
RenderedChat render_llama3(const Conversation& conversation, const RenderOptions& options);
RenderedChat render_plain(const Conversation& conversation, const RenderOptions& options);

std::string minimind_v1_jinja();
std::string minimind_v2_jinja();
std::string llama3_jinja();
std::string plain_jinja();

}  // namespace trireme::text
