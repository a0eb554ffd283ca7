#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/learn/word_counter.hpp"

namespace trireme {

/// Returns the words with their counts, sorted by bytes.
inline std::vector<std::pair<std::string, std::uint64_t>> sorted_words(
    const text::WordCounter& counter) {
  std::vector<std::pair<std::string, std::uint64_t>> words;
  counter.pieces().for_each(
      [&](std::string_view piece, std::uint64_t count) { words.emplace_back(piece, count); });
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace trireme
