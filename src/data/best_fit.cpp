#include "data/best_fit.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/error.hpp"

namespace trireme {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Piece {
  std::uint32_t doc;
  std::uint32_t begin;
  std::uint32_t length;
};

/// Open sequences by room left: "the fullest one with room for n". Bits in words of words, so a
/// search is O(log64 L).
class RoomIndex {
 public:
  explicit RoomIndex(std::size_t max_room) : head_(max_room + 1, kNone) {
    for (std::size_t size = max_room + 1; size > 1; size = (size + 63) / 64)
      levels_.emplace_back((size + 63) / 64);
  }

  void push(std::size_t room, std::uint32_t sequence) {
    if (sequence >= next_.size()) next_.resize(sequence + 1, kNone);
    next_[sequence] = head_[room];
    head_[room] = sequence;
    for (std::vector<std::uint64_t>& level : levels_) {
      level[room / 64] |= std::uint64_t{1} << (room % 64);
      room /= 64;
    }
  }

  /// Removes and returns {room, sequence} with the least room >= wanted; sequence kNone if there is
  /// none.
  std::pair<std::size_t, std::uint32_t> pop(std::size_t wanted) {
    const std::size_t room = find(wanted);
    if (room == head_.size()) return {room, kNone};
    const std::uint32_t sequence = head_[room];
    head_[room] = next_[sequence];
    if (head_[room] == kNone) clear(room);
    return {room, sequence};
  }

 private:
  [[nodiscard]] std::size_t find(std::size_t from) const {
    std::size_t level = 0;
    while (level < levels_.size()) {
      const std::size_t word = from / 64;
      if (word >= levels_[level].size()) break;
      const std::uint64_t bits = levels_[level][word] & (~std::uint64_t{0} << (from % 64));
      if (bits != 0) {
        std::size_t found = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        while (level-- > 0)
          found = found * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][found]));
        return found;
      }
      from = word + 1;
      ++level;
    }
    return head_.size();
  }

  void clear(std::size_t room) {
    for (std::vector<std::uint64_t>& level : levels_) {
      level[room / 64] &= ~(std::uint64_t{1} << (room % 64));
      if (level[room / 64] != 0) return;
      room /= 64;
    }
  }

  std::vector<std::uint32_t> head_;  // [room] newest sequence with that room
  std::vector<std::uint32_t> next_;  // [sequence] the one below it in the same pile
  std::vector<std::vector<std::uint64_t>>
      levels_;  // [0] one bit a room, [1] one bit a word of [0], ...
};

std::vector<Piece> cut_documents(std::span<const std::uint64_t> doc_offset, std::uint64_t seq_len) {
  std::vector<Piece> pieces;
  pieces.reserve(doc_offset.size());
  for (std::size_t doc = 0; doc + 1 < doc_offset.size(); ++doc) {
    const std::uint64_t length = doc_offset[doc + 1] - doc_offset[doc];
    if (length > kNone)
      fail(ErrorKind::data, "document ", doc, " has ", length, " tokens, must be under 2^32");
    for (std::uint64_t begin = 0; begin < length; begin += seq_len) {
      pieces.push_back({static_cast<std::uint32_t>(doc),
                        static_cast<std::uint32_t>(begin),
                        static_cast<std::uint32_t>(std::min(seq_len, length - begin))});
    }
  }
  return pieces;
}

/// Longest first, otherwise as they came (a counting sort).
std::vector<Piece> sort_by_length(const std::vector<Piece>& pieces, std::size_t seq_len) {
  std::vector<std::size_t> start(seq_len + 2, 0);
  for (const Piece& piece : pieces) ++start[seq_len - piece.length + 1];
  for (std::size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
  std::vector<Piece> sorted(pieces.size());
  for (const Piece& piece : pieces) sorted[start[seq_len - piece.length]++] = piece;
  return sorted;
}

PackTable make_table(const std::vector<Piece>& pieces,
                     const std::vector<std::uint32_t>& sequence_of,
                     std::size_t num_sequences,
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
       ++i) {  // pieces are in document order: so are those of a sequence
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
  if (seq_len < 2 || seq_len > std::int64_t{1} << 24) {
    fail(ErrorKind::usage, name, " = ", seq_len, ", must be in [2, 16777216]");
  }
}

PackTable pack_best_fit(std::span<const std::uint64_t> doc_offset, std::int64_t seq_len) {
  check_seq_len(seq_len, "sequence length");
  if (doc_offset.size() > kNone)
    fail(ErrorKind::data, "a shard with ", doc_offset.size(), " documents, must be under 2^32");
  const auto length = static_cast<std::size_t>(seq_len);
  const std::vector<Piece> pieces = cut_documents(doc_offset, length);
  std::vector<Piece> order(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    order[i] = {static_cast<std::uint32_t>(i), 0, pieces[i].length};
  order = sort_by_length(order, length);

  RoomIndex open(length);
  std::vector<std::uint32_t> sequence_of(pieces.size());
  std::uint32_t num_sequences = 0;
  for (const Piece& item : order) {  // item.doc is an index in pieces
    auto [room, sequence] = open.pop(item.length);
    if (sequence == kNone) {
      sequence = num_sequences++;
      room = length;
    }
    sequence_of[item.doc] = sequence;
    if (room > item.length) open.push(room - item.length, sequence);
  }
  return make_table(pieces, sequence_of, num_sequences, seq_len);
}

}  // namespace trireme
