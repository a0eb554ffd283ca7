#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "objective/head.hpp"
#include "parallel/context/deal_tokens.hpp"

/// Log-probabilities of the sequences of a batch of pairs, numbered as Microbatch::sequence_of.
namespace trireme {

/// Of whole sequences, in host memory: [2 * num_pairs] fp64 each, the same on all ranks that hold
/// parts of them.
struct SequenceScores {
  at::Tensor sums;    // of log p over a sequence's targets
  at::Tensor counts;  // its targets
};

/// A batch's tokens that have a target: their sequences, in host memory, [N] int64. Throws
/// Error(internal) for a batch without pairs.
at::Tensor sequences_of(const Microbatch& batch, const TargetRows& targets);

/// Adds up log_probs [N], one of each target; with context parallelism over its ranks (collective).
/// The additions run in the order of the tokens: the same arguments give the same bits.
SequenceScores sum_sequences(std::int64_t num_pairs, const at::Tensor& sequences,
                             const at::Tensor& log_probs, const ContextGroup& context);

/// What a frozen model says of a batch: `hidden` [B, T, D] are its states after the last norm.
SequenceScores sequence_scores(const Microbatch& batch, const at::Tensor& hidden, const Head& head,
                               const ContextGroup& context);

/// Where a preference loss has the log-probabilities of its frozen reference from.
class ReferenceScores {
 public:
  virtual ~ReferenceScores() = default;

  /// As Objective::prepare.
  virtual void prepare(std::span<const Microbatch> /*micro_batches*/) {}

  /// SequenceScores::sums of the reference; collective as sequence_scores. Called once for each
  /// micro-batch, after the model's own forward pass.
  [[nodiscard]] virtual at::Tensor sums(const Microbatch& batch) = 0;
};

/// Log-probabilities of one preference pair, computed before training.
struct PairScore {
  std::uint64_t key = 0;  // Batch::pair_keys
  std::int64_t document = 0;
  std::array<double, 2> sums{};          // chosen, rejected: SequenceScores::sums
  std::array<std::int32_t, 2> counts{};  // SequenceScores::counts
};

/// Splits the scores of a batch by its pairs.
std::vector<PairScore> pair_scores(const Microbatch& batch, const SequenceScores& scores);

/// Scores that were computed once, before training. A pair is found by its key, which names its
/// token set, its length, and its tokens and targets.
class StoredReference final : public ReferenceScores {
 public:
  /// If two scores have the same key, the first counts. `where` names their origin in errors.
  StoredReference(std::span<const PairScore> scores, std::string where,
                  const ContextGroup& context = {});

  /// Throws Error(data) for a pair without a score, or with another number of targets.
  [[nodiscard]] at::Tensor sums(const Microbatch& batch) override;

 private:
  std::unordered_map<std::uint64_t, PairScore> scores_;  // by key
  std::string where_;
  ContextGroup context_;
};

}  // namespace trireme
