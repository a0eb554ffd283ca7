#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/batch.hpp"
#include "data/order/order.hpp"
#include "data/order/token_weights.hpp"
#include "data/sequences/pairs.hpp"
#include "data/sequences/sequences.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

enum class Packing { best_fit, concat };

/// "best-fit" or "concat"; Error(usage) naming it as `name` for anything else.
Packing parse_packing(std::string_view text, std::string_view name);
std::string_view name_of(Packing packing);

/// How the documents of a set become samples.
struct SampleConfig {
  std::int64_t seq_len = 0;
  Packing packing = Packing::best_fit;
  bool cross_documents = false;  // concat only: a sequence is one segment across its documents
  std::optional<DocumentRange> documents = {};  // none: all
  TokenWeights token_weights = {};              // empty: batches hold no weights
  std::int64_t row_multiple = 1;                // of pairs: what T of a batch is a multiple of
  std::int64_t first_record = 0;                // of pairs: Batch::pair_records of document 0
  bool answers_only = false;                    // of pairs: tokens of the prompt are no targets
};

class SampleSet;

/// A sample by its global index (kNoSample: none, whatever its position) and where it lies.
struct DrawnSample {
  std::int64_t index = kNoSample;
  const SampleSet* samples = nullptr;
  std::uint64_t position = 0;
};

/// A token set as samples: what training draws from. An epoch has size() of them.
///
/// Texts and conversations: sequences of `seq_len` tokens, a row of a batch each. best_fit: whole
/// documents where they fit, see packed_sequences; concat: one stream cut every seq_len, see
/// ConcatSequences. Pairs: their sides have at most `seq_len` tokens, see Pairs. The set
/// must outlive this. Functions may be called from several threads; they throw as TokenSet.
class SampleSet {
 public:
  /// Throws Error(usage) for a bad length or cross_documents without concat, Error(data) for
  /// documents without a target.
  SampleSet(const TokenSet& set, const SampleConfig& config);

  SampleSet(const TokenSet& set, std::int64_t seq_len)
      : SampleSet(set, SampleConfig{.seq_len = seq_len}) {}

  /// What those samples for which `taken` is false hold, at another length; may be none.
  [[nodiscard]] SampleSet rest(const std::function<bool(std::uint64_t)>& taken,
                               std::int64_t seq_len) const;

  [[nodiscard]] const TokenSet& set() const noexcept { return *set_; }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] std::int64_t seq_len() const noexcept { return config_.seq_len; }

  /// The documents of the set that the samples are made of.
  [[nodiscard]] DocumentRange documents() const;

  /// Whether a sample is a pair.
  [[nodiscard]] bool of_pairs() const noexcept { return pairs_ != nullptr; }

  /// True when nothing was packed at opening.
  [[nodiscard]] bool prepared() const { return of_pairs() || sequences_->prepared(); }

  /// Targets of the sample at `position` in [0, size()), from tables: reads no token.
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const;

  /// Returns the document of the pair at `position`, counted over the shards of the set.
  [[nodiscard]] std::uint64_t pair_document(std::uint64_t position) const {
    return pairs_->document(position);
  }

  /// Returns Batch::pair_keys of the pair at `position`. Reads the tokens of the pair.
  [[nodiscard]] std::uint64_t pair_key(std::uint64_t position) const;

  /// As a rule the first sequence has one; all are looked at only where there is none.
  [[nodiscard]] bool has_targets() const;

  /// The samples of these global indices; kNoSample gives a row of padding, or no pair. `order` must
  /// be over size() samples. What is of the whole update is left 0.
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> indices,
                                 const SampleOrder& order) const;

 private:
  friend Batch gather_batch(std::span<const DrawnSample> drawn);

  SampleSet(const TokenSet& set, const SampleConfig& config, std::unique_ptr<Sequences> sequences,
            std::unique_ptr<Pairs> pairs);

  /// Writes the sequence at `position` into row `row` of a batch. Rows are filled in order.
  void fill_row(std::uint64_t position, std::int64_t row, Batch& batch) const;
  /// Adds the pair at `position` behind what the batch holds.
  void add_pair(std::uint64_t position, Batch& batch) const;
  /// Pads a batch of pairs.
  void finish_pairs(Batch& batch) const;
  void weigh_targets(Batch& batch) const;
  void fill_segment(const Piece& piece, std::int64_t at, Batch& batch) const;
  void fill_joined_row(std::uint64_t position, std::int64_t row, Batch& batch) const;
  void read_checked(const TokenShard& shard, std::uint64_t begin,
                    std::span<std::int64_t> ids) const;

  const TokenSet* set_;
  SampleConfig config_;
  std::int64_t pad_id_;
  std::uint64_t key_of_set_;  // of set and length: the part that all pair keys have in common
  std::unique_ptr<Sequences> sequences_;
  std::unique_ptr<Pairs> pairs_;             // of pairs: instead of sequences_
  const ConcatSequences* joined_ = nullptr;  // with cross_documents: sequences_
  std::uint64_t size_ = 0;
};

/// One batch of samples that lie in sets of one kind, length and configuration. What is of the whole
/// update is left 0. Throws Error(usage) if it is too large.
Batch gather_batch(std::span<const DrawnSample> drawn);

}  // namespace trireme
