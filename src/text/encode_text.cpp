#include "text/encode_text.hpp"

namespace trireme {

std::vector<std::uint32_t> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::uint32_t> ids = tokenizer.encode(text);
  if (const auto bos = tokenizer.bos_id(); ids.empty() && bos) ids.push_back(*bos);
  return ids;
}

}  // namespace trireme
