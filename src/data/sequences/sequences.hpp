#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/sequences/split.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

/// A piece of a document, and the shard it lies in.
struct Piece {
  std::size_t shard = 0;
  Segment segment;
};

/// Tokens of a shard, whatever documents they are from.
struct TokenRun {
  std::size_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
};

/// How the documents of a set (or a range of them) are cut into sequences of one length: each token
/// of a text lies in exactly one, a conversation in at most one. Functions may be called from several threads; they throw as TokenSet.
class Sequences {
 public:
  virtual ~Sequences() = default;
  Sequences() = default;
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;
  Sequences(Sequences&&) = delete;
  Sequences& operator=(Sequences&&) = delete;

  [[nodiscard]] virtual std::uint64_t size() const = 0;

  /// Of sequence `position` in [0, size()), in order; at most seq_len tokens in all.
  [[nodiscard]] virtual std::vector<Piece> pieces(std::uint64_t position) const = 0;

  /// Positions that have a target when no document sees another.
  [[nodiscard]] virtual std::int64_t num_targets(std::uint64_t position) const = 0;

  /// True when nothing was packed at opening.
  [[nodiscard]] virtual bool prepared() const { return true; }
};

/// Sequences of pack_documents over the documents of each shard, shards one after another. Where
/// pack prepared this length for a whole shard its tables are read as needed; otherwise they are
/// computed here at once (time O(D log L), about 20 bytes a document). A conversation (kind sft)
/// longer than seq_len loses its end, and is left out where that leaves no target, as in `pack`.
/// `set` must outlive it.
std::unique_ptr<Sequences> packed_sequences(const TokenSet& set, std::int64_t seq_len,
                                            const DocumentRange& documents);

/// The tokens of those sequences of `before` for which `taken` is false, packed anew at another
/// length: neighbouring pieces of one document are joined before they are cut; conversations are
/// taken whole, with the end that the former length cut. May be empty.
/// Memory: about 30 bytes a piece.
std::unique_ptr<Sequences> rest_of_sequences(const TokenSet& set, const Sequences& before,
                                             const std::function<bool(std::uint64_t)>& taken,
                                             std::int64_t seq_len);

/// All documents in file order as one stream of tokens, cut every seq_len; the last sequence may be
/// short. O(shards) memory; the documents of a sequence are searched for in the table on disk.
class ConcatSequences : public Sequences {
 public:
  ConcatSequences(const TokenSet& set, std::int64_t seq_len, const DocumentRange& documents);

  [[nodiscard]] std::uint64_t size() const override;
  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t position) const override;
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const override;

  /// The sequence's tokens and the one behind it, if there is one: at most seq_len + 1.
  [[nodiscard]] std::vector<TokenRun> runs(std::uint64_t position) const;

 private:
  const TokenSet& set_;
  std::uint64_t seq_len_;
  std::uint64_t begin_ = 0;  // tokens of the set, over its shards in order
  std::uint64_t end_ = 0;
  std::vector<std::uint64_t> first_token_{0};  // [shards+1]
};

}  // namespace trireme
