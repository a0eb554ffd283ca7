#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/batch.hpp"
#include "data/order/order.hpp"
#include "data/sequences/sequences.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

enum class Packing { best_fit, concat };

/// "best-fit" or "concat"; Error(usage) naming it as `name` for anything else.
Packing parse_packing(std::string_view text, std::string_view name);
std::string_view name_of(Packing packing);

/// How the documents of a set become sequences.
struct SampleConfig {
  std::int64_t seq_len = 0;
  Packing packing = Packing::best_fit;
  bool cross_documents = false;  // concat only: a sequence is one segment across its documents
  std::optional<DocumentRange> documents = {};  // none: all
};

/// A token set cut into sequences of `seq_len`: what training draws from.
///
/// best_fit: whole documents where they fit, see packed_sequences. concat:
/// one stream cut every seq_len, see ConcatSequences. An epoch has size() sequences,
/// and each token of the set lies in exactly one. The set must outlive this.
/// Functions may be called from several threads; they throw as TokenSet.
class SampleSet {
 public:
  /// Throws Error(usage) for a bad length or cross_documents without concat, Error(data) for
  /// documents without a target.
  SampleSet(const TokenSet& set, const SampleConfig& config);

  SampleSet(const TokenSet& set, std::int64_t seq_len)
      : SampleSet(set, SampleConfig{.seq_len = seq_len}) {}

  /// The same with sequences of the caller's making, which may be none.
  SampleSet(const TokenSet& set, std::int64_t seq_len, std::unique_ptr<Sequences> sequences);

  [[nodiscard]] const TokenSet& set() const noexcept { return *set_; }

  [[nodiscard]] const Sequences& sequences() const noexcept { return *sequences_; }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] std::int64_t seq_len() const noexcept { return seq_len_; }

  /// True when pack prepared this length.
  [[nodiscard]] bool prepared() const { return sequences_->prepared(); }

  /// Targets of the sequence at `position` in [0, size()), from a table: reads no token.
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const;

  /// As a rule the first sequence has one; all are looked at only where there is none.
  [[nodiscard]] bool has_targets() const;

  /// One row per global sample index; kNoSample gives a row of padding. `order` must be over size()
  /// samples. update_targets is left 0.
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> indices,
                                 const SampleOrder& order) const;

  /// Writes the sequence at `position` into row `row` of a batch from start_batch.
  /// Rows are filled in order.
  void fill_row(std::uint64_t position, std::int64_t row, Batch& batch) const;

 private:
  void fill_segment(const Piece& piece, std::int64_t at, Batch& batch) const;
  void fill_joined_row(std::uint64_t position, std::int64_t row, Batch& batch) const;
  void read_checked(const TokenShard& shard, std::uint64_t begin,
                    std::span<std::int64_t> ids) const;

  const TokenSet* set_;
  std::int64_t seq_len_;
  std::int64_t pad_id_;
  std::unique_ptr<Sequences> sequences_;
  const ConcatSequences* joined_ = nullptr;  // with cross_documents: sequences_
  std::uint64_t size_ = 0;
};

/// A batch of `indices.size()` rows that are still to be filled, in order.
/// Error(usage) if it is too large.
Batch start_batch(std::span<const std::int64_t> indices, std::int64_t seq_len);

/// Fills row `row` with padding, from `begin` tokens on.
void pad_row(std::int64_t begin, std::int64_t row, std::int64_t pad_id, Batch& batch);

}  // namespace trireme
