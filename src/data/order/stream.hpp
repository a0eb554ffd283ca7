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
  TokenWeights token_weights = {};  // see SampleConfig, like the next two
  std::int64_t row_multiple = 1;
  bool answers_only = false;
};

/// The end of a stream that never ends.
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
/// Sample i belongs to the last phase that starts at or before i. The blend of the phase gives the
/// source and the number of earlier samples from this source over all phases: a source continues at
/// its own counter, whatever the weights were. A source is one set, or several sets that are
/// shuffled as one (SampleOrder over all their sequences). At another length (phases `at` L), it
/// first uses the rest of the current epoch, packed again; then whole epochs at that length follow.
///   memory  sets and lengths that pack did not prepare cost about 20 bytes per document (see
///           sequences.hpp); a change of length costs a bit per sequence while the stream is built
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

  [[nodiscard]] StreamLocation place(std::int64_t index) const;

  /// Returns true if a sample is a preference pair rather than a sequence.
  [[nodiscard]] bool samples_are_pairs() const;

  /// Returns the length of sample `index` (for pairs: the maximum of a side), which is the same for
  /// all samples of a step.
  [[nodiscard]] std::int64_t seq_len(std::int64_t index) const;
  [[nodiscard]] std::int64_t max_seq_len() const;
  /// Returns the lengths of the phases, in order.
  [[nodiscard]] std::vector<std::int64_t> seq_lens() const;

  /// Returns the number of samples of one pass over the data; nullopt if weights or phases make
  /// that undefined.
  [[nodiscard]] std::optional<std::uint64_t> epoch_size() const;

  /// Returns the step of the first phase of another length that begins inside an update, if updates
  /// of `global_batch` samples follow each other from `next_sample` on; usually nullopt.
  [[nodiscard]] std::optional<std::int64_t> cut_update(std::int64_t next_sample,
                                                       std::int64_t global_batch) const;

  /// Returns the number of targets of `count` samples from `first` on, without reading tokens.
  [[nodiscard]] std::int64_t count_targets(std::int64_t first, std::int64_t count) const;

  /// Returns `count` samples from `first` on, all of one phase; samples from `end` on are
  /// kNoSample. Members for the whole update stay 0.
  [[nodiscard]] Batch make_batch(std::int64_t first, std::int64_t count,
                                 std::int64_t end = kNoEnd) const;

  /// Returns for each source the number of its samples among the first `index` samples of the run.
  [[nodiscard]] std::vector<std::uint64_t> consumed(std::int64_t index) const;

  /// Returns the settings to read a set for validation: those of the stream, but all documents and
  /// equal target weights. Documents of the stream's own sets have the same numbers.
  [[nodiscard]] SampleConfig view(const TokenSet& set, std::int64_t seq_len) const;

  /// Returns the first set of the first phase; all sets have its kind, tokenizer and vocabulary.
  /// Not for a stream of one SampleSet.
  [[nodiscard]] const TokenSet& first_set() const;
  /// Returns all sets, in order of first use.
  [[nodiscard]] std::vector<const TokenSet*> sets() const;
  /// Returns every set at every length that a phase trains on, whole epochs, in order of first use.
  [[nodiscard]] std::vector<const SampleSet*> sample_sets() const;
  [[nodiscard]] std::size_t num_sources() const;

  /// The state of the samples that a run has already used, as stored in a checkpoint.
  struct State {
    std::optional<std::string> content_hash;  // hash of one whole set; later phases keep it
    /// JSON: settings, hashes of the sources, started phases, samples consumed from each source.
    /// Absent in old checkpoints (before plans) of one whole set.
    std::optional<std::string> plan;
  };

  /// Returns the state before sample `next_sample`, which is equal for any number of ranks.
  [[nodiscard]] State state(std::int64_t next_sample) const;

  /// Returns a hash of all phases, including later ones: equal for two streams that give the same
  /// samples to the end.
  [[nodiscard]] std::string plan_hash() const;

  /// Checks that the samples before `next_sample` equal those of the run of `checkpoint` (`saved`).
  /// Later phases may differ. Throws Error(usage) naming the difference and `checkpoint`.
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
