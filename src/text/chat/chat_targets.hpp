#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/rendered.hpp"

namespace trireme {

/// Which tokens are trained.
enum class ChatMask {
  answer,    // of each assistant message: its content and its end token
  minimind,  // what MiniMind's trainer of the template's time trains (MaskSearch)
};

/// "answer" or "minimind"; throws Error(usage) on anything else.
ChatMask parse_chat_mask(std::string_view name);

/// Tokens [begin, end).
struct TokenSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

/// Tokens among the first `num_kept` that are targets: ascending, disjoint, never
/// token 0, which nothing predicts.
///
/// A token is a target if all of it lies in a trained range: one that crosses a border (a line end
/// of the header joined with one that begins the answer) is not, so no text of the template is
/// trained. An answer that is no target (ChatMessage::is_target) is left out under either mask, with
/// the line ends around it.
/// ChatMask::minimind gives the targets that MiniMind's search for token sequences gives on a chat
/// of `num_kept` tokens whose texts contain none of the markers; texts that do change nothing here.
/// chatml and qwen3 are searched like V3.
std::vector<TokenSpan> chat_targets(const RenderedChat& chat, const EncodedChat& encoded,
                                    ChatMask mask, MaskSearch search, std::size_t num_kept);

}  // namespace trireme
