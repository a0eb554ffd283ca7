#include "serve/grammar/sorted_tokens.hpp"

#include <algorithm>

#include "text/added_tokens.hpp"

namespace trireme {

SortedTokens::SortedTokens(const Tokenizer& tokenizer, std::span<const std::string_view> markers,
                           std::int64_t vocab_size)
    : tokenizer_(tokenizer) {
  const auto size = static_cast<std::uint32_t>(
      std::min<std::int64_t>(vocab_size, std::int64_t{tokenizer.vocab_size()}));
  std::vector<bool> is_left_out(size, false);
  for (const AddedToken& token : tokenizer_.added_tokens()) {
    const bool is_marker =
        std::find(markers.begin(), markers.end(), token.content) != markers.end();
    if (token.id < size) is_left_out[token.id] = !is_marker;
  }
  for (std::uint32_t id = 0; id < size; ++id) {
    const std::string_view bytes = tokenizer_.token_bytes(id);
    if (!bytes.empty() && !is_left_out[id]) rows_.push_back({bytes, id, 0});
  }
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (std::size_t i = 1; i < rows_.size(); ++i) {
    const std::string_view before = rows_[i - 1].bytes;
    const std::string_view here = rows_[i].bytes;
    const auto same = std::mismatch(before.begin(), before.end(), here.begin(), here.end()).first;
    rows_[i].shared = static_cast<std::uint32_t>(same - before.begin());
  }
}

}  // namespace trireme
