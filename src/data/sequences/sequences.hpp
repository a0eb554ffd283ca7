#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/sequences/split.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data {

/// A part of a document and the shard that contains it.
struct Piece {
  std::size_t shard = 0;
  Segment segment;
};

/// A range of tokens of a shard, across documents.
struct TokenRun {
  std::size_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
};

/// Cuts the documents of a set (or a range of them) into sequences of one length. Each token of a
/// text belongs to exactly one sequence, a conversation to at most one. Thread-safe. Functions
/// throw like TokenSet.
class Sequences {
 public:
  virtual ~Sequences() = default;
  Sequences() = default;
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  [[nodiscard]] virtual std::uint64_t size() const = 0;

  /// Returns the parts of sequence `position` in [0, size()), in order; at most seq_len tokens.
  [[nodiscard]] virtual std::vector<Piece> pieces(std::uint64_t position) const = 0;

  /// Returns the number of targets, without attention across documents.
  [[nodiscard]] virtual std::int64_t num_targets(std::uint64_t position) const = 0;

  /// Returns true if nothing was packed when the set was opened.
  [[nodiscard]] virtual bool prepared() const { return true; }
};

/// Returns the sequences of pack_documents for the documents of each shard, shard by shard. If pack
/// prepared this length for a whole shard, its tables are read on demand; otherwise they are
/// computed now (time O(D log L), about 20 bytes per document). A conversation (kind sft) longer
/// than seq_len loses its end, and is omitted if no target is left, like in `pack`. `set` must
/// outlive the result.
std::unique_ptr<Sequences> packed_sequences(const TokenSet& set, std::int64_t seq_len,
                                            const DocumentRange& documents);

/// Packs the sequences of `before` for which `taken` is false at another length. Joins adjacent
/// parts of a document before cutting. Conversations are used whole, including the end that the
/// former length cut. The result may be empty. Needs about 30 bytes per part.
std::unique_ptr<Sequences> rest_of_sequences(const TokenSet& set, const Sequences& before,
                                             const std::function<bool(std::uint64_t)>& taken,
                                             std::int64_t seq_len);

/// All documents in file order as one stream of tokens, cut every seq_len tokens. The last sequence
/// may be short. O(shards) memory; searches the table on disk for the documents of a sequence.
class ConcatSequences : public Sequences {
 public:
  ConcatSequences(const TokenSet& set, std::int64_t seq_len, const DocumentRange& documents);

  [[nodiscard]] std::uint64_t size() const override;
  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t position) const override;
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const override;

  /// Returns the tokens of the sequence and the token after it, if there is one: at most seq_len +
  /// 1.
  [[nodiscard]] std::vector<TokenRun> runs(std::uint64_t position) const;

 private:
  const TokenSet& set_;
  std::uint64_t seq_len_;
  std::uint64_t begin_ = 0;  // token positions in the set, over its shards in order
  std::uint64_t end_ = 0;
  std::vector<std::uint64_t> first_token_{0};  // [shards+1]
};

}  // namespace trireme::data
