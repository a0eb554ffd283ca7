#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.hpp"
#include "data/order.hpp"
#include "data/token_set.hpp"

namespace trireme {

/// A token set cut into sequences of `seq_len`: what training draws from.
///
/// The sequences of shard s are those of pack_best_fit over its documents, shards one after
/// another; an epoch has size() of them, and each token of the set lies in exactly one. Where pack
/// prepared this length its tables are read as needed; for another length they are computed here at
/// once (time O(D log L), memory about 20 bytes a document). The set must outlive this. Functions
/// may be called from several threads; they throw as TokenSet.
class SampleSet {
 public:
  /// Throws Error(usage) for a bad length or a set without sequences.
  SampleSet(const TokenSet& set, std::int64_t seq_len);

  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back(); }

  [[nodiscard]] std::int64_t seq_len() const noexcept { return seq_len_; }

  /// True when pack prepared this length.
  [[nodiscard]] bool prepared() const noexcept { return prepared_; }

  /// Targets of the sequence at `position` in [0, size()), from a table: reads no token.
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const;

  /// Sum of num_targets over global sample indices (kNoSample counts 0): the divisor of a loss,
  /// known before any forward.
  [[nodiscard]] std::int64_t count_targets(std::span<const std::int64_t> indices,
                                           const SampleOrder& order) const;

  /// One row per global sample index; kNoSample gives a row of padding. `order` must be over size()
  /// samples. update_targets is left 0.
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> indices,
                                 const SampleOrder& order) const;

 private:
  struct Place {
    std::size_t shard = 0;
    std::uint64_t sequence = 0;
  };

  [[nodiscard]] Place locate(std::uint64_t position) const;
  [[nodiscard]] std::vector<Segment> segments(const Place& place) const;
  void fill_row(std::uint64_t position, std::int64_t row, Batch& batch) const;

  const TokenSet& set_;
  std::int64_t seq_len_;
  std::int64_t pad_id_;
  bool prepared_ = true;
  std::vector<std::uint64_t> first_{0};  // [shards+1] first sequence of each shard
  std::vector<PackTable> tables_;        // [shards] when not prepared
};

}  // namespace trireme
