#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/learn/id_pair_table.hpp"

namespace trireme {

/// The merge loop of BPE training over a vocabulary that grows. Used by train_bpe only.
///
/// All words lie in one array of symbols. A token of n characters takes n places: its id stands in
/// the first and the last of them, so both neighbours of any token are one look away and nothing
/// moves when two become one. Each pair has the list of the places where it begins, made when the
/// pair comes into being and never longer after that; what is no longer true is seen when a place
/// is visited. Changes of counts are summed over a merge by neighbour, so tables are asked once
/// for each distinct neighbour, not for each place.
///   time    proportional to the places merged; nothing else in a word is touched
///   memory  4 bytes for each character of the distinct words, sizeof(Position) for each pair in
///           them, now or later (about 2.5 a character), 48 for each distinct pair
/// Position: an unsigned type that counts the characters of all distinct words,
/// with one more for each word.
template <class Position>
class MergeLearner {
 public:
  /// `tokens`: the vocabulary so far, distinct.
  explicit MergeLearner(std::vector<std::string> tokens);

  /// Room for this many words and symbols.
  void reserve(std::uint64_t words, std::uint64_t symbols);

  /// Ids of a word's characters, and how often the word occurs. All words come before learn. Words
  /// of equal counts should come together: each change of the count costs memory.
  void add_word(std::span<const std::uint32_t> ids, std::uint64_t count);

  /// Merges until the vocabulary has `vocab_size` tokens or no pair occurs
  /// `min_frequency` times (at least once). A pair is new only if both parts together
  /// are shorter than `max_length` characters.
  void learn(std::size_t vocab_size, std::uint64_t min_frequency, std::uint64_t max_length);

  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }

  /// By rank; a pair may occur twice, then its last rank counts.
  [[nodiscard]] const std::vector<IdPair>& merges() const { return merges_; }

  /// The largest count of a pair that training has seen.
  [[nodiscard]] std::uint64_t max_count() const { return max_count_; }

 private:
  static constexpr std::uint32_t kBetween = 0xFFFFFFFF;  // words
  static constexpr std::uint32_t kInside = 0xFFFFFFFE;   // a token, at neither end of it

  /// From `begin` up to the next run all words occur `count` times.
  struct Run {
    Position begin = 0;
    std::int64_t count = 0;
  };

  /// A pair with its places: `size` entries of places_[list] from `begin`.
  struct Candidate {
    std::int64_t count = 0;
    IdPair pair = 0;
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    std::uint32_t list = 0;

    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  /// Sums over one merge for one neighbour, on one side.
  struct Neighbour {
    std::int64_t lost = 0;    // occurrences of its pair with the old part
    std::int64_t gained = 0;  // and with the new token
    std::uint64_t times = 0;  // places of the gained ones
    std::uint64_t fill = 0;   // where the next of them goes
    bool touched = false;
  };

  struct Side {
    std::vector<Neighbour> of;           // by id
    std::vector<std::uint32_t> touched;  // ids with sums

    Neighbour& touch(std::uint32_t id) {
      Neighbour& neighbour = of[id];
      if (!neighbour.touched) {
        neighbour.touched = true;
        touched.push_back(id);
      }
      return neighbour;
    }
  };

  struct Merged {
    Position place = 0;
    std::uint32_t before = 0;
    std::uint32_t after = 0;
    std::int64_t count = 0;
  };

  void count_pairs();
  void merge(const Candidate& candidate, std::uint32_t result, std::uint64_t max_length);
  void join_places(const Candidate& candidate, std::uint32_t result);
  void gain_pairs(std::uint32_t result, std::uint64_t max_length);
  void subtract_lost(IdPair pair);
  void push_gained(std::uint32_t result);
  std::uint32_t token_of(IdPair pair);

  std::vector<std::string> tokens_;
  std::vector<std::uint32_t> lengths_;  // of tokens_, in characters
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::uint32_t> symbols_;
  std::vector<Run> runs_;
  IdPairTable<std::int64_t> counts_;
  std::vector<std::vector<Position>> places_;  // a list for each merge, 0 for the first pairs
  std::vector<Candidate> heap_;
  std::vector<IdPair> merges_;
  std::uint64_t max_count_ = 0;
  // Of the merge at work:
  std::vector<Merged> merged_;
  Side before_, after_;
};

extern template class MergeLearner<std::uint32_t>;
extern template class MergeLearner<std::uint64_t>;

}  // namespace trireme
