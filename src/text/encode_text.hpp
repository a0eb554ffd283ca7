#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace trireme {

/// The ids that `transformers` gives for a text: special tokens in it count, and the tokenizer's
/// post-processor puts its own around it. A text without any becomes the beginning-of-text token,
/// with which `transformers` starts when it is given none; empty where there is no such token.
std::vector<std::uint32_t> encode_text(const Tokenizer& tokenizer, std::string_view text);

}  // namespace trireme
