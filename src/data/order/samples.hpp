#pragma once
#include <algorithm>
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

namespace trireme::data {

enum class Packing { best_fit, concat };

/// Parses "best-fit" or "concat". Throws Error(usage) that names the setting `name` for any other
/// text.
Packing parse_packing(std::string_view text, std::string_view name);
std::string_view name_of(Packing packing);

/// Settings that turn the documents of a set into samples.
struct SampleConfig {
  std::int64_t seq_len = 0;
  Packing packing = Packing::best_fit;
  bool cross_documents = false;  // concat only: a sequence is one segment across its documents
  std::optional<DocumentRange> documents = {};  // nullopt: all
  TokenWeights token_weights = {};              // empty: batches have no weights
  std::int64_t row_multiple = 1;                // pairs: T of a batch is a multiple of this number
  std::int64_t first_record = 0;                // pairs: Batch::pair_records of document 0
  bool answers_only = false;                    // pairs: tokens of the prompt are not targets
};

class SampleSet;

/// A sample with its global index (kNoSample: no sample) and its position in a set.
struct DrawnSample {
  std::int64_t index = kNoSample;
  const SampleSet* samples = nullptr;
  std::uint64_t position = 0;
};

/// A token set as training samples. An epoch has size() samples.
///
/// - Texts and conversations: sequences of `seq_len` tokens, one per row of a batch. best_fit packs
///   whole documents if they fit, see packed_sequences. concat cuts one stream every seq_len
///   tokens, see ConcatSequences.
/// - Preference pairs: each side has at most `seq_len` tokens, see Pairs.
///
/// The set must outlive this object. Thread-safe. Functions throw like TokenSet.
class SampleSet {
 public:
  /// Throws Error(usage) for an invalid length or cross_documents without concat, Error(data) if no
  /// document has a target.
  SampleSet(const TokenSet& set, const SampleConfig& config);

  SampleSet(const TokenSet& set, std::int64_t seq_len)
      : SampleSet(set, SampleConfig{.seq_len = seq_len}) {}

  /// Returns the samples that are not used yet (`taken` returns false for their position), packed
  /// again at another length. The result may be empty.
  [[nodiscard]] SampleSet rest(const std::function<bool(std::uint64_t)>& taken,
                               std::int64_t seq_len) const;

  [[nodiscard]] const TokenSet& set() const noexcept { return *set_; }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] std::int64_t seq_len() const noexcept { return config_.seq_len; }

  /// Keeps only the first `count` samples. Does nothing if there are fewer.
  void keep_first(std::uint64_t count) noexcept { size_ = std::min(size_, count); }

  /// Returns the documents of the set that the samples are made from.
  [[nodiscard]] DocumentRange documents() const;

  /// Returns true if the samples are preference pairs.
  [[nodiscard]] bool samples_are_pairs() const noexcept { return pairs_ != nullptr; }

  /// Returns true if `pack` prepared all sequences, so that opening the set packed nothing.
  [[nodiscard]] bool prepared() const { return samples_are_pairs() || sequences_->prepared(); }

  /// Returns the targets of the sample at `position` in [0, size()), from tables without reading
  /// tokens.
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const;

  /// Returns the document of the pair at `position`, counted over the shards of the set.
  [[nodiscard]] std::uint64_t pair_document(std::uint64_t position) const {
    return pairs_->document(position);
  }

  /// Returns Batch::pair_keys of the pair at `position`. Reads the tokens of the pair.
  [[nodiscard]] std::uint64_t pair_key(std::uint64_t position) const;

  /// Returns true if at least one sample has a target. The search ends at the first such sample,
  /// which is usually the first sample of the set.
  [[nodiscard]] bool has_targets() const;

  /// Returns a batch of the samples with these global indices. For kNoSample, the batch gets a row
  /// of padding, or no pair. `order` must have size() samples. The members that describe the whole
  /// update stay 0.
  [[nodiscard]] Batch make_batch(std::span<const std::int64_t> indices,
                                 const SampleOrder& order) const;

 private:
  friend Batch gather_batch(std::span<const DrawnSample> drawn);

  SampleSet(const TokenSet& set, const SampleConfig& config, std::unique_ptr<Sequences> sequences,
            std::unique_ptr<Pairs> pairs);

  /// Writes the sequence at `position` into row `row` of a batch. Rows are filled in order.
  void fill_row(std::uint64_t position, std::int64_t row, Batch& batch) const;
  /// Returns true if each sample is one answer (SampleForm::answer).
  [[nodiscard]] bool samples_are_answers() const;
  /// Appends the pair at `position` to the batch.
  void add_pair(std::uint64_t position, Batch& batch) const;
  /// Appends the answer at `position` to the batch, and its prompt with the answer of another prompt
  /// to `mismatched`.
  void add_answer(std::uint64_t position, Batch& batch, Batch& mismatched) const;
  /// Pads a batch of pairs.
  void finish_pairs(Batch& batch) const;
  void weigh_targets(Batch& batch) const;
  void fill_segment(const Piece& piece, std::int64_t at, Batch& batch) const;
  void fill_concat_row(std::uint64_t position, std::int64_t row, Batch& batch) const;
  void read_checked(const TokenShard& shard, std::uint64_t begin,
                    std::span<std::int64_t> ids) const;

  const TokenSet* set_;
  SampleConfig config_;
  std::int64_t pad_id_;
  std::uint64_t key_of_set_;  // hash of set and length, part of all pair keys
  std::unique_ptr<Sequences> sequences_;
  std::unique_ptr<Pairs> pairs_;             // for pairs: used instead of sequences_
  const ConcatSequences* joined_ = nullptr;  // with cross_documents: the object in sequences_
  std::uint64_t size_ = 0;
};

/// Makes one batch of samples. All samples must come from sets of the same kind, length and
/// configuration. The members that describe the whole update stay 0. Throws Error(usage) if the
/// batch is too large.
Batch gather_batch(std::span<const DrawnSample> drawn);

}  // namespace trireme::data
