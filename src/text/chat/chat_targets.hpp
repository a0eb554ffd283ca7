#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/rendered.hpp"

namespace trireme::text {

/// Selects the training targets of a chat.
enum class ChatMask {
  answer,    // content and end token of each assistant message
  minimind,  // the targets of MiniMind's trainer for this template (MaskSearch)
};

/// Parses "answer" or "minimind". Throws Error(usage) for any other name.
ChatMask parse_chat_mask(std::string_view name);

/// The tokens [begin, end).
struct TokenSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

/// Returns the target tokens among the first `num_kept` as ascending, disjoint spans. Token 0 is
/// never a target because nothing predicts it.
///
/// A token is a target if it lies completely inside a target range, so text of the template is
/// never a target. For example, a token that joins the newline of the header with the start of an
/// answer is not a target. Answers with is_target = false, and the newlines around them, have no
/// targets under either mask.
/// ChatMask::minimind gives the targets of MiniMind's search for token sequences, on a chat of
/// `num_kept` tokens. Texts that contain markers do not disturb this function. chatml and qwen3 are
/// handled like V3.
std::vector<TokenSpan> chat_targets(const RenderedChat& chat, const EncodedChat& encoded,
                                    ChatMask mask, MaskSearch search, std::size_t num_kept);

}  // namespace trireme::text
