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

namespace trireme {

/// All that decides which tokens global sample i of a run is.
struct StreamConfig {
  std::vector<PlanPhase> phases;
  std::int64_t seq_len = 0;       // of phases that name none; 0: that of the first set
  std::int64_t global_batch = 1;  // sequences a step
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint64_t shuffle_block = 0;
  BlendRule blend_rule = BlendRule::table;
  Packing packing = Packing::best_fit;
  bool cross_documents = false;
  std::string split;                // "969,30,1"; "": all documents
  TokenWeights token_weights = {};  // see SampleConfig; the next one too
  std::int64_t row_multiple = 1;
  bool answers_only = false;
};

/// The end of a stream of samples that never ends.
inline constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

/// Where a global sample lies.
struct StreamPlace {
  const SampleSet* samples = nullptr;
  std::uint64_t position = 0;  // in it
  std::size_t source = 0;
  std::uint64_t epoch = 0;  // of the source at this length
};

/// The samples of a whole run as a function of their global index: phases, blends of sources,
/// each source in an order of its own. Everything but the sets' tables is O(1) memory, and any
/// index may be asked for at any time, from several threads.
///
/// Sample i is in the last phase that starts at or before it. There the blend says which source it
/// is from, and how many of this source came before, counted over all phases: a source goes on
/// where it stood, whatever the weights were. A source is one set, or several that are shuffled as
/// one (SampleOrder over all their sequences). At another length (phases `at` L) it goes on with
/// what the epoch under way has left, packed anew; then come whole epochs at that length.
///   memory  sets and lengths that pack did not prepare cost about 20 bytes a document (see
///           sequences.hpp), a change of length a bit a sequence while the stream is built
class SampleStream {
 public:
  /// Opens the sets. Throws as TokenSet and SampleSet; Error(usage) for sets that do not belong
  /// together (kind, tokenizer, vocabulary) and for a change of length with packing concat.
  static SampleStream open(const StreamConfig& config);

  /// Of one set that the caller keeps alive.
  SampleStream(const SampleSet& samples, const OrderConfig& order);

  SampleStream(SampleStream&&) noexcept;
  SampleStream& operator=(SampleStream&&) = delete;
  SampleStream(const SampleStream&) = delete;
  SampleStream& operator=(const SampleStream&) = delete;
  ~SampleStream();

  [[nodiscard]] StreamPlace place(std::int64_t index) const;

  /// Returns true if a sample is a preference pair rather than a sequence.
  [[nodiscard]] bool of_pairs() const;

  /// Length of sample `index`, of pairs the most of a side: the same for all samples of a step.
  [[nodiscard]] std::int64_t seq_len(std::int64_t index) const;
  [[nodiscard]] std::int64_t max_seq_len() const;
  /// Of the phases, in their order.
  [[nodiscard]] std::vector<std::int64_t> seq_lens() const;

  /// Samples of one pass over the data; none where weights or phases say that
  /// there is no such thing.
  [[nodiscard]] std::optional<std::uint64_t> epoch_size() const;

  /// The step of the first phase of another length that begins inside an update, if updates of
  /// `global_batch` samples follow each other from `next_sample` on; none as a rule.
  [[nodiscard]] std::optional<std::int64_t> cut_update(std::int64_t next_sample,
                                                       std::int64_t global_batch) const;

  /// Targets of all `count` samples from `first` on, without reading a token.
  [[nodiscard]] std::int64_t count_targets(std::int64_t first, std::int64_t count) const;

  /// The `count` samples from `first` on, all of one phase, those from `end` on as kNoSample. What is
  /// of the whole update is left 0.
  [[nodiscard]] Batch make_batch(std::int64_t first, std::int64_t count,
                                 std::int64_t end = kNoEnd) const;

  /// Samples of each source among the first `index` of the run.
  [[nodiscard]] std::vector<std::uint64_t> consumed(std::int64_t index) const;

  /// How a set is looked at beside the stream, for validation: as the stream does, all documents,
  /// targets of equal weight; records of its own sets are numbered alike.
  [[nodiscard]] SampleConfig view(const TokenSet& set, std::int64_t seq_len) const;

  /// The first set of the first phase: kind, tokenizer and vocabulary of all.
  /// Not for a stream of one SampleSet.
  [[nodiscard]] const TokenSet& first_set() const;
  /// All sets, in order of first mention.
  [[nodiscard]] std::vector<const TokenSet*> sets() const;
  /// Every set at every length that a phase trains on it, whole epochs, in order of first mention.
  [[nodiscard]] std::vector<const SampleSet*> sample_sets() const;
  [[nodiscard]] std::size_t num_sources() const;

  /// The samples that a run has been given before a sample, as a checkpoint keeps them.
  struct State {
    std::optional<std::string> content_hash;  // one whole set: its own; later phases keep it
    /// JSON: settings, hashes of the sources, phases begun, samples consumed of each source. Absent
    /// in checkpoints of one whole set from before there were plans.
    std::optional<std::string> plan;
  };

  /// Returns the state before sample `next_sample`, which is equal for any number of ranks.
  [[nodiscard]] State state(std::int64_t next_sample) const;

  /// One word for all phases, also those that have not begun: equal for two streams that give the
  /// same samples to the end.
  [[nodiscard]] std::string plan_hash() const;

  /// Checks that this stream gives the samples before `next_sample` that the run of `checkpoint` was
  /// given (`saved`). Later phases may differ. Throws Error(usage) naming what differs and
  /// `checkpoint`.
  void check_state(const State& saved, std::int64_t next_sample,
                   const std::string& checkpoint) const;

  [[nodiscard]] std::string content_hash() const;

 private:
  struct Leg;
  struct Source;
  struct Phase;
  struct Parts;
  class Builder;

  explicit SampleStream(std::unique_ptr<Parts> parts);
  [[nodiscard]] const Phase& phase_of(std::int64_t index) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace trireme
