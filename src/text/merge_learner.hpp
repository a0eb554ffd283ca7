#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme {

/// The merge loop of BPE training over a vocabulary that grows. Used by train_bpe only.
class MergeLearner {
 public:
  using Pair = std::uint64_t;  // left id << 32 | right id: compares as (left, right)

  /// `tokens`: the vocabulary so far in the byte alphabet, distinct, with all 256 bytes.
  explicit MergeLearner(std::vector<std::string> tokens);

  /// A word (raw bytes) and how often it occurs. All words come before learn.
  void add_word(std::string_view bytes, std::uint64_t count);

  /// Merges until the vocabulary has `vocab_size` tokens or no pair occurs `min_frequency` times
  /// (at least once). A pair is new only if both parts together are shorter than `max_length`
  /// bytes.
  void learn(std::size_t vocab_size, std::uint64_t min_frequency, std::uint64_t max_length);

  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }

  /// By rank; a pair may occur twice, then its last rank counts.
  [[nodiscard]] const std::vector<Pair>& merges() const { return merges_; }

 private:
  struct Word {
    std::uint64_t begin = 0;  // in symbols_
    std::uint32_t length = 0;
    std::int64_t count = 0;
  };

  struct PairState {
    std::int64_t count = 0;            // occurrences over all words
    std::vector<std::uint32_t> words;  // with occurrences that are not in the heap yet
  };

  /// Each entry owns the words it was pushed for; a pair that appears in more words later gets
  /// another entry.
  struct Candidate {
    std::int64_t count = 0;
    Pair pair = 0;
    std::vector<std::uint32_t> words;

    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  /// Pair to index into pairs_: open addressing, because this look-up is most of the training time.
  struct PairSlot {
    Pair pair = 0;
    std::uint32_t index = 0;  // 0: empty slot
  };

  PairState& state(Pair pair);
  void grow_table();
  void change(Pair pair, std::int64_t by, std::uint32_t word);
  void count_words();
  void push_new_pairs();
  void merge_in(std::uint32_t word, Pair pair, std::uint32_t result, std::uint64_t max_length);
  std::uint32_t token_of(Pair pair);

  std::vector<std::string> tokens_;
  std::vector<std::uint64_t> lengths_;  // of tokens_, in characters of the byte alphabet
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::uint32_t> symbols_;
  std::vector<Word> words_;
  std::vector<PairSlot> table_;
  std::vector<PairState> pairs_;
  std::vector<Pair> pair_of_;         // of pairs_
  std::vector<std::uint32_t> fresh_;  // indices of pairs_ with words that are not in the heap yet
  std::vector<Candidate> heap_;
  std::vector<Pair> merges_;
};

}  // namespace trireme
