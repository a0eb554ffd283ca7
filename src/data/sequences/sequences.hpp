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
/// text belongs to exactly one sequence. A conversation belongs to at most one sequence.
/// Thread-safe. Functions throw like TokenSet.
class Sequences {
 public:
  virtual ~Sequences() = default;
  Sequences() = default;
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  [[nodiscard]] virtual std::uint64_t size() const = 0;

  /// Returns the parts of sequence `position` in [0, size()), in order; at most seq_len tokens.
  [[nodiscard]] virtual std::vector<Piece> pieces(std::uint64_t position) const = 0;

  /// Returns the number of targets of sequence `position` if attention does not cross documents.
  [[nodiscard]] virtual std::int64_t num_targets(std::uint64_t position) const = 0;

  /// Returns true if `pack` prepared all sequences, so that opening the set packed nothing.
  [[nodiscard]] virtual bool prepared() const { return true; }
};

/// Packs the documents with pack_documents, shard by shard. If `pack` prepared this length and
/// `documents` contains the whole shard, the tables of the shard are read on demand. Otherwise the
/// tables are computed now (time O(D log L), about 20 bytes per document). A conversation (kind
/// sft) longer than seq_len loses its end, and is omitted if no target is left, like in `pack`.
/// `set` must outlive the result.
std::unique_ptr<Sequences> packed_sequences(const TokenSet& set, std::int64_t seq_len,
                                            const DocumentRange& documents);

/// Takes the sequences of `before` that are not used yet (`taken` returns false for their position)
/// and packs their documents again at another length. Adjacent parts of a document are joined
/// first. Conversations are used whole, including the end that the former length cut. The result
/// may be empty. Needs about 30 bytes per part.
std::unique_ptr<Sequences> rest_of_sequences(const TokenSet& set, const Sequences& before,
                                             const std::function<bool(std::uint64_t)>& taken,
                                             std::int64_t seq_len);

/// All documents in file order as one stream of tokens, cut every seq_len tokens. The last sequence
/// may be short. Needs O(shards) memory, because it searches the table on disk for the documents of
/// a sequence.
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
