#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme {

/// Counts the pieces that the GPT-2 pattern cuts from training texts. Only the multiset of pieces
/// matters, so the result is independent of order, threads and ranks: count apart, then merge.
class WordCounter {
 public:
  /// One training unit, cut as a whole. Throws Error(data) if it is not valid UTF-8.
  void add(std::string_view text);

  /// Every line of `text`, its "\n" included, as a unit of its own: what Hugging Face's
  /// train(files) does. White space at line ends is cut differently than by add.
  void add_lines(std::string_view text);

  /// `count` more of a piece counted elsewhere.
  void add_word(std::string_view piece, std::uint64_t count);

  void merge(const WordCounter& other);

  /// Pieces (raw bytes) with their counts, sorted by bytes.
  [[nodiscard]] std::vector<std::pair<std::string_view, std::uint64_t>> sorted() const;

  [[nodiscard]] std::size_t size() const { return counts_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept;
  };

  std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>> counts_;
};

}  // namespace trireme
