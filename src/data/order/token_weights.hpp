#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

namespace trireme {

/// Factor of the loss of a target whose token is that; of all others 1.
using TokenWeights = std::map<std::int64_t, float>;

/// Ids of a text, nothing put around it.
using EncodeWord = std::function<std::vector<std::uint32_t>(std::string_view)>;

/// "<think>=10,</think>=10": words, each one token, and weights of 0 or more; "" is none. Blanks
/// around an entry do not count; a word with one of , = " or a blank at an end is put in double
/// quotes. Throws Error(usage) naming the text as `name` ("sft.token_weights") for anything else, a
/// word that is not one token, and a token given twice.
TokenWeights parse_token_weights(std::string_view text, std::string_view name,
                                 const EncodeWord& encode);

}  // namespace trireme
