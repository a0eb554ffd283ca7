#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/order/blend.hpp"
#include "data/order/plan.hpp"
#include "data/order/samples.hpp"
#include "data/sequences/split.hpp"

namespace trireme::data {

/// All settings that determine the samples of a run.
struct StreamConfig {
  std::vector<PlanPhase> phases;
  std::int64_t seq_len = 0;       // default length of phases; 0: length of the first set
  std::int64_t global_batch = 1;  // sequences per step
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint64_t shuffle_block = 0;
  BlendRule blend_rule = BlendRule::table;
  Packing packing = Packing::best_fit;
  bool cross_documents = false;
  std::string split;                // "969,30,1"; "": all documents
  TokenWeights token_weights = {};  // see SampleConfig, also for the next two members
  std::int64_t row_multiple = 1;
  bool answers_only = false;
};

/// The value of `end` for a stream without an end.
inline constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

/// The position of a global sample.
struct StreamLocation {
  const SampleSet* samples = nullptr;
  std::uint64_t position = 0;  // position in `samples`
  std::size_t source = 0;
  std::uint64_t epoch = 0;  // epoch of the source at this length
};

/// The samples of a whole run as a function of their global index: phases, blends of sources, and
/// an order for each source. Needs O(1) memory except for the tables of the sets. Any thread may
/// request any index at any time.
///
/// Sample i belongs to the last phase that starts at or before i. The blend of the phase selects
/// the source of the sample. A source is one set, or several sets that are shuffled as one (one
/// SampleOrder over all their sequences). Each source counts its own samples over all phases, so
/// the next phase continues where the last phase stopped, even if the weights change. If a phase
/// changes the sequence length (`at` L), a source first uses the rest of its current epoch, packed
/// again at the new length. Then whole epochs at that length follow.
///   memory  sets and lengths that `pack` did not prepare need about 20 bytes per document (see
///           sequences.hpp). A change of length needs one bit per sequence while the stream is
///           built.
class SampleStream {
 public:
  /// Opens the sets. Throws like TokenSet and SampleSet; Error(usage) for sets that do not match
  /// (kind, tokenizer, vocabulary) and for a change of length with packing concat.
  static SampleStream open(const StreamConfig& config);

  /// Creates a stream of one set that the caller keeps alive.
  SampleStream(const SampleSet& samples, const OrderConfig& order);

  SampleStream(SampleStream&&) noexcept;
  SampleStream& operator=(SampleStream&&) = delete;
  SampleStream(const SampleStream&) = delete;
  SampleStream& operator=(const SampleStream&) = delete;
  ~SampleStream();

  [[nodiscard]] StreamLocation locate(std::int64_t index) const;

  /// Returns true if a sample is a preference pair rather than a sequence.
  [[nodiscard]] bool samples_are_pairs() const;

  /// Returns the length of sample `index` (for pairs: the maximum length of a side). All samples of
  /// a step have the same length.
  [[nodiscard]] std::int64_t seq_len(std::int64_t index) const;
  [[nodiscard]] std::int64_t max_seq_len() const;
  /// Returns the lengths of the phases, in order.
  [[nodiscard]] std::vector<std::int64_t> seq_lens() const;

  /// Returns the number of samples of one pass over the data; nullopt if weights or phases make
  /// that undefined.
  [[nodiscard]] std::optional<std::uint64_t> epoch_size() const;

  /// Finds a phase that changes the sequence length in the middle of an update. The updates have
  /// `global_batch` samples and begin at `next_sample`. Returns the first step of this phase;
  /// nullopt if there is no such phase, which is the usual case.
  [[nodiscard]] std::optional<std::int64_t> cut_update(std::int64_t next_sample,
                                                       std::int64_t global_batch) const;

  /// Returns the number of targets of `count` samples from `first` on, without reading tokens.
  [[nodiscard]] std::int64_t count_targets(std::int64_t first, std::int64_t count) const;

  /// Returns a batch of `count` samples from `first` on. All of them must belong to one phase.
  /// Samples from `end` on become kNoSample. The members that describe the whole update stay 0.
  [[nodiscard]] Batch make_batch(std::int64_t first, std::int64_t count,
                                 std::int64_t end = kNoEnd) const;

  /// Returns for each source the number of its samples among the first `index` samples of the run.
  [[nodiscard]] std::vector<std::uint64_t> consumed(std::int64_t index) const;

  /// Returns the settings for a validation set. They equal the settings of the stream, but all
  /// documents are used and all targets have the weight 1. If the set belongs to the stream, its
  /// documents have the same numbers as in the stream.
  [[nodiscard]] SampleConfig view(const TokenSet& set, std::int64_t seq_len) const;

  /// Returns the first set of the first phase; all sets have its kind, tokenizer and vocabulary.
  /// Must not be called for a stream that was created from a SampleSet.
  [[nodiscard]] const TokenSet& first_set() const;
  /// Returns all sets, in order of first use.
  [[nodiscard]] std::vector<const TokenSet*> sets() const;
  /// Returns one SampleSet for each set and each sequence length that a phase uses, in order of
  /// first use. Each SampleSet is a whole epoch.
  [[nodiscard]] std::vector<const SampleSet*> sample_sets() const;
  [[nodiscard]] std::size_t num_sources() const;
  [[nodiscard]] std::size_t num_phases() const;

  /// The state of the samples that a run has already used, as stored in a checkpoint.
  struct State {
    // result of content_hash(); later phases do not change it
    std::optional<std::string> content_hash;
    /// JSON: settings, hashes of the sources, started phases, samples consumed from each source.
    /// Absent in old checkpoints (before plans) of one whole set.
    std::optional<std::string> plan;
  };

  /// Returns the state before sample `next_sample`, which is equal for any number of ranks.
  [[nodiscard]] State state(std::int64_t next_sample) const;

  /// Returns a hash of all phases, including later ones: equal for two streams that give the same
  /// samples to the end.
  [[nodiscard]] std::string plan_hash() const;

  /// Checks that the samples before `next_sample` equal the samples that the run of `checkpoint`
  /// has used, as recorded in `saved`. Later phases may differ. Throws Error(usage) with a message
  /// that names the difference and `checkpoint`.
  void check_state(const State& saved, std::int64_t next_sample,
                   const std::string& checkpoint) const;

  [[nodiscard]] std::string content_hash() const;

 private:
  struct LengthPhase;
  struct Source;
  struct Phase;
  struct Parts;
  class Builder;

  explicit SampleStream(std::unique_ptr<Parts> parts);
  [[nodiscard]] const Phase& phase_of(std::int64_t index) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace trireme::data
