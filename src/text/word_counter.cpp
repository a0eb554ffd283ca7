#include "text/word_counter.hpp"

#include <algorithm>

#include "core/hash.hpp"
#include "text/gpt2_split.hpp"
#include "text/utf8.hpp"

namespace trireme {

std::size_t WordCounter::Hash::operator()(std::string_view text) const noexcept {
  return xxh3_64(text);
}

void WordCounter::add(std::string_view text) {
  check_utf8(text, "training text");
  split_gpt2(text, [this](std::string_view piece) { add_word(piece, 1); });
}

void WordCounter::add_lines(std::string_view text) {
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::size_t length = newline == std::string_view::npos ? text.size() : newline + 1;
    add(text.substr(0, length));
    text.remove_prefix(length);
  }
}

void WordCounter::add_word(std::string_view piece, std::uint64_t count) {
  const auto found = counts_.find(piece);
  if (found != counts_.end()) {
    found->second += count;
  } else {
    counts_.emplace(piece, count);
  }
}

void WordCounter::merge(const WordCounter& other) {
  for (const auto& [piece, count] : other.counts_) add_word(piece, count);
}

std::vector<std::pair<std::string_view, std::uint64_t>> WordCounter::sorted() const {
  std::vector<std::pair<std::string_view, std::uint64_t>> words(counts_.begin(), counts_.end());
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace trireme
