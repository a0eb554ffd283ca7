#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace trireme::text {

/// Returns the ids that `transformers` gives for a text: special tokens in the text are recognized,
/// and the post-processor adds its own. An empty result becomes the BOS token, as in
/// `transformers`, or stays empty if there is no BOS token.
inline std::vector<std::uint32_t> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::uint32_t> ids = tokenizer.encode(text);
  if (const auto bos = tokenizer.bos_id(); ids.empty() && bos) ids.push_back(*bos);
  return ids;
}

}  // namespace trireme::text
