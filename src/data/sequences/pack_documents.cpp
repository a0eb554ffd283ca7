#include "data/sequences/pack_documents.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/error.hpp"

namespace trireme::data {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct DocumentPiece {
  std::uint32_t doc;
  std::uint32_t begin;
  std::uint32_t length;
};

/// The parts that do not belong to a sequence yet, by length. A hierarchy of bit sets marks the
/// available lengths, so that a search takes O(log64 L).
class PiecePool {
 public:
  explicit PiecePool(const std::vector<DocumentPiece>& pieces)
      : pieces_(&pieces), left_(pieces.size()) {
    for (const DocumentPiece& piece : pieces)
      longest_ = std::max<std::size_t>(longest_, piece.length);
    count_.assign(longest_ + 1, 0);
    for (const DocumentPiece& piece : pieces) ++count_[piece.length];
    for (std::size_t size = longest_ + 1; size > 1; size = (size + 63) / 64)
      levels_.emplace_back((size + 63) / 64);
    next_.resize(longest_ + 1);
    for (std::size_t length = 1; length <= longest_; ++length) {
      if (count_[length] != 0) add(length);
      next_[length] = next_[length - 1] + count_[length - 1];
    }
    by_length_.resize(pieces.size());
    std::vector<std::uint32_t> place = next_;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      by_length_[place[pieces[i].length]++] = static_cast<std::uint32_t>(i);
    taken_.resize(pieces.size());
  }

  [[nodiscard]] bool empty() const { return left_ == 0; }

  [[nodiscard]] std::uint32_t count(std::size_t length) const {
    return length < count_.size() ? count_[length] : 0;
  }

  // longest(), shortest() and first() advance a search position and do not remove a part. The pool
  // must not be empty.
  std::size_t longest() {
    while (count_[longest_] == 0) --longest_;
    return longest_;
  }

  std::size_t shortest() {
    while (count_[shortest_] == 0) ++shortest_;
    return shortest_;
  }

  /// Returns the length of the first remaining part in document order.
  std::size_t first() {
    while (taken_[first_]) ++first_;
    return (*pieces_)[first_].length;
  }

  /// Returns the greatest available length up to `room`; 0 if there is none.
  [[nodiscard]] std::size_t longest_within(std::size_t room) const {
    std::size_t from = std::min(room, count_.size() - 1);
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      const std::size_t word = from / 64;
      const std::uint64_t bits = levels_[level][word] & (~std::uint64_t{0} >> (63 - from % 64));
      if (bits != 0) return descend(level, word * 64 + highest(bits));
      if (word == 0) return 0;
      from = word - 1;
    }
    return 0;
  }

  /// Removes the first part of this length, which must exist, and returns its number.
  std::uint32_t take(std::size_t length) {
    const std::uint32_t piece = by_length_[next_[length]++];
    taken_[piece] = true;
    --left_;
    if (--count_[length] == 0) remove(length);
    return piece;
  }

 private:
  static std::size_t highest(std::uint64_t bits) {
    return 63 - static_cast<std::size_t>(std::countl_zero(bits));
  }

  [[nodiscard]] std::size_t descend(std::size_t level, std::size_t found) const {
    while (level-- > 0) found = found * 64 + highest(levels_[level][found]);
    return found;
  }

  void add(std::size_t length) {
    for (std::vector<std::uint64_t>& level : levels_) {
      level[length / 64] |= std::uint64_t{1} << (length % 64);
      length /= 64;
    }
  }

  void remove(std::size_t length) {
    for (std::vector<std::uint64_t>& level : levels_) {
      level[length / 64] &= ~(std::uint64_t{1} << (length % 64));
      if (level[length / 64] != 0) return;
      length /= 64;
    }
  }

  const std::vector<DocumentPiece>* pieces_;
  std::size_t left_;
  std::size_t longest_ = 0;
  std::size_t shortest_ = 1;
  std::size_t first_ = 0;
  std::vector<bool> taken_;               // [pieces]
  std::vector<std::uint32_t> count_;      // [length] number of remaining parts
  std::vector<std::uint32_t> next_;       // [length] position of the first one in by_length_
  std::vector<std::uint32_t> by_length_;  // [pieces] sorted by length, then by number
  std::vector<std::vector<std::uint64_t>>
      levels_;  // [0] one bit per length, [1] one bit per word of [0], ...
};

/// Returns the length of a part for the end of a sequence with `room` free tokens. Tries the
/// longest lengths that fit. Prefers a length that leaves a space which one other part fills
/// exactly.
std::size_t choose_for_exact_pair(const PiecePool& pool, std::size_t shortest, std::size_t room,
                                  std::size_t longest_fit) {
  constexpr int kTried = 32;  // number of lengths; more lengths gave no measurable gain
  std::size_t without_hole = 0;
  std::size_t length = longest_fit;
  for (int i = 0; i < kTried && 2 * length >= room; ++i) {
    const std::size_t rest = room - length;
    if (pool.count(rest) > (rest == length ? 1U : 0U)) return length;
    if (without_hole == 0 && rest >= shortest) without_hole = length;
    length = pool.longest_within(length - 1);
  }
  return without_hole != 0 ? without_hole : longest_fit;
}

/// Returns `length`, or a shorter length if `length` leaves a space that no number of parts can
/// fill. n parts have n * shortest to n * longest tokens. If all lengths are similar, there are
/// gaps between these ranges for n and n + 1.
std::size_t avoid_gap(PiecePool& pool, std::size_t room, std::size_t length) {
  const std::size_t rest = room - length;
  const std::size_t pieces = (rest + pool.longest() - 1) / pool.longest();
  const std::size_t least = pieces * pool.shortest();
  if (rest >= least || least >= room) return length;
  const std::size_t shorter = pool.longest_within(room - least);
  return shorter != 0 ? shorter : length;
}

/// Returns the length of the next part for a sequence with `room` free tokens. At least one part
/// must fit.
std::size_t choose_piece(PiecePool& pool, std::size_t room) {
  const std::size_t longest_fit = pool.longest_within(room);
  if (longest_fit == room) return room;
  // Take parts in document order until the sequence is nearly full, so that early and late
  // sequences have the same mix of lengths.
  const std::size_t length = room <= 3 * pool.longest()
                                 ? choose_for_exact_pair(pool, pool.shortest(), room, longest_fit)
                                 : pool.first();
  return avoid_gap(pool, room, length);
}

std::size_t choose_longest(PiecePool& pool, std::size_t room) {
  return pool.longest_within(room);
}

struct Assignment {
  std::vector<std::uint32_t> sequence_of;  // [pieces]
  std::uint32_t num_sequences = 0;
};

/// Assigns each part to a sequence; `choose` selects the second and later parts of a sequence. A
/// sequence always begins with the longest part, which is the hardest to place. `pool` is a copy,
/// and the function empties this copy.
template <class Choose>
Assignment fill_sequences(PiecePool pool, std::size_t pieces, std::size_t seq_len, Choose choose) {
  Assignment result;
  result.sequence_of.resize(pieces);
  for (; !pool.empty(); ++result.num_sequences) {
    std::size_t length = pool.longest();
    std::size_t room = seq_len;
    while (true) {
      result.sequence_of[pool.take(length)] = result.num_sequences;
      room -= length;
      if (pool.empty() || room < pool.shortest()) break;
      length = choose(pool, room);
    }
  }
  return result;
}

std::vector<DocumentPiece> cut_documents(std::span<const std::uint64_t> doc_offset,
                                         std::uint64_t seq_len) {
  std::vector<DocumentPiece> pieces;
  pieces.reserve(doc_offset.size());
  for (std::size_t doc = 0; doc + 1 < doc_offset.size(); ++doc) {
    const std::uint64_t length = doc_offset[doc + 1] - doc_offset[doc];
    if (length > kNone)
      fail(ErrorKind::data, "document {} has {} tokens, must be under 2^32", doc, length);
    for (std::uint64_t begin = 0; begin < length; begin += seq_len) {
      pieces.push_back({static_cast<std::uint32_t>(doc), static_cast<std::uint32_t>(begin),
                        static_cast<std::uint32_t>(std::min(seq_len, length - begin))});
    }
  }
  return pieces;
}

PackTable make_table(const std::vector<DocumentPiece>& pieces,
                     const std::vector<std::uint32_t>& sequence_of, std::size_t num_sequences,
                     std::int64_t seq_len) {
  PackTable table;
  table.seq_len = seq_len;
  table.seq_ptr.assign(num_sequences + 1, 0);
  table.targets.assign(num_sequences, 0);
  table.seg_doc.resize(pieces.size());
  table.seg_begin.resize(pieces.size());
  table.seg_len.resize(pieces.size());
  for (const std::uint32_t sequence : sequence_of) ++table.seq_ptr[sequence + 1];
  for (std::size_t n = 0; n < num_sequences; ++n) table.seq_ptr[n + 1] += table.seq_ptr[n];
  std::vector<std::uint64_t> place(table.seq_ptr.begin(), table.seq_ptr.end() - 1);
  for (std::size_t i = 0; i < pieces.size();
       ++i) {  // keeps the document order within each sequence
    const std::uint64_t at = place[sequence_of[i]]++;
    table.seg_doc[at] = pieces[i].doc;
    table.seg_begin[at] = pieces[i].begin;
    table.seg_len[at] = pieces[i].length;
    table.targets[sequence_of[i]] += pieces[i].length - 1;
  }
  return table;
}

}  // namespace

void check_seq_len(std::int64_t seq_len, const char* name) {
  if (seq_len < kMinSeqLen || seq_len > kMaxSeqLen)
    fail(ErrorKind::usage, "{} = {}, must be in [{}, {}]", name, seq_len, kMinSeqLen, kMaxSeqLen);
}

PackTable pack_documents(std::span<const std::uint64_t> doc_offset, std::int64_t seq_len) {
  check_seq_len(seq_len, "sequence length");
  if (doc_offset.size() > kNone)
    fail(ErrorKind::data, "a shard has {} documents, must be under 2^32", doc_offset.size());
  const auto length = static_cast<std::size_t>(seq_len);
  const std::vector<DocumentPiece> pieces = cut_documents(doc_offset, length);
  const PiecePool pool(pieces);
  Assignment best = fill_sequences(pool, pieces.size(), length, choose_piece);
  Assignment plain = fill_sequences(pool, pieces.size(), length, choose_longest);
  if (plain.num_sequences < best.num_sequences) best = std::move(plain);
  return make_table(pieces, best.sequence_of, best.num_sequences, seq_len);
}

}  // namespace trireme::data
