#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme {

/// Two neighbouring ids: left << 32 | right, so that it compares as (left, right).
using IdPair = std::uint64_t;

inline IdPair id_pair(std::uint32_t left, std::uint32_t right) noexcept {
  return IdPair{left} << 32 | right;
}

/// A value for each pair: open addressing, because this look-up is much of the training time.
/// No pair of two ids 2^32-1.
template <class Value>
class IdPairTable {
 public:
  struct Slot {
    IdPair pair = kNone;
    Value value{};
  };

  IdPairTable() : slots_(1 << 12) {}

  /// Null if the pair is not there. Valid until the next operator[].
  [[nodiscard]] Value* find(IdPair pair) noexcept {
    Slot& slot = slots_[place_of(pair)];
    return slot.pair == pair ? &slot.value : nullptr;
  }

  /// The pair's value, new if it is not there. Valid until the next call.
  Value& operator[](IdPair pair) {
    std::size_t at = place_of(pair);
    if (slots_[at].pair != pair) {
      if ((size_ + 1) * 2 > slots_.size()) {
        grow();
        at = place_of(pair);
      }
      slots_[at].pair = pair;
      ++size_;
    }
    return slots_[at].value;
  }

  /// Says that find(pair) or operator[] will be called soon.
  void fetch(IdPair pair) const noexcept { __builtin_prefetch(&slots_[hash_of(pair) & mask()]); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Calls visit(pair, value) for every pair, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (Slot& slot : slots_) {
      if (slot.pair != kNone) visit(slot.pair, slot.value);
    }
  }

 private:
  static constexpr IdPair kNone = ~IdPair{0};

  static std::size_t hash_of(IdPair pair) noexcept {
    pair *= 0x9E3779B97F4A7C15ULL;
    return pair ^ pair >> 32;
  }

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }

  /// Of the pair, or the empty slot where it would be.
  [[nodiscard]] std::size_t place_of(IdPair pair) const noexcept {
    std::size_t at = hash_of(pair) & mask();
    while (slots_[at].pair != pair && slots_[at].pair != kNone) at = (at + 1) & mask();
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.pair != kNone) slots_[place_of(slot.pair)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

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
