#include "text/chat/markers.hpp"

#include <algorithm>

#include "text/added_tokens.hpp"

namespace trireme::text {

std::vector<std::string_view> missing_markers(const ChatTemplate& format,
                                              const Tokenizer& tokenizer) {
  const std::vector<AddedToken>& added = tokenizer.added_tokens();
  std::vector<std::string_view> missing;
  for (const std::string_view marker : format.markers) {
    const bool is_known = std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
      return token.content == marker;
    });
    if (!is_known) missing.push_back(marker);
  }
  return missing;
}

}  // namespace trireme::text
