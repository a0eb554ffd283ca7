#pragma once
#include "text/chat/chat_template.hpp"

/// The templates that are not ChatML. See ChatTemplate for what they are.
namespace trireme {

RenderedChat render_minimind_v1(const Conversation& conversation, const RenderOptions& options);
RenderedChat render_minimind_v2(const Conversation& conversation, const RenderOptions& options);
RenderedChat render_llama3(const Conversation& conversation, const RenderOptions& options);
RenderedChat render_plain(const Conversation& conversation, const RenderOptions& options);

}  // namespace trireme
