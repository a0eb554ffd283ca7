#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Token id -> factor of the loss of targets with this token. All other tokens have factor 1.
using TokenWeights = std::map<std::int64_t, float>;

/// Returns the token ids of a text without special tokens around it.
using EncodeWord = std::function<std::vector<std::uint32_t>(std::string_view)>;

/// Parses "<think>=10,</think>=10": words of one token each, with weights of 0 or more. "" means no
/// weights. Blanks around an entry are ignored. A word that contains , = or ", or has a blank at an
/// end, must be in double quotes. Throws Error(usage) for any other text, for a word of several
/// tokens, and for a token that is given twice. The message names the setting `name`
/// ("sft.token_weights").
TokenWeights parse_token_weights(std::string_view text, std::string_view name,
                                 const EncodeWord& encode);

}  // namespace trireme::data
