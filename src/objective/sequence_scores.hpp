#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "objective/head.hpp"
#include "parallel/context/shard_sequence.hpp"

/// Log-probabilities of the sequences of preference pairs, numbered like Microbatch::sequence_of.
namespace trireme::objective {

/// Scores of whole sequences, in host memory: [2 * num_pairs] fp64 each, equal on all ranks that
/// hold parts of the sequences.
struct SequenceScores {
  at::Tensor sums;    // sum of log p over the targets of each sequence
  at::Tensor counts;  // number of targets
};

/// Returns the sequence of each token with a target, in host memory, [N] int64. Throws
/// Error(internal) for a batch without pairs.
at::Tensor sequences_of(const parallel::Microbatch& batch, const TargetRows& targets);

/// Sums log_probs [N], one per target, by sequence; collective over the ranks of cp. Additions run
/// in token order, so equal arguments give equal bits.
SequenceScores sum_sequences(std::int64_t num_pairs, const at::Tensor& sequences,
                             const at::Tensor& log_probs, const parallel::ContextGroup& context);

/// Returns SequenceScores::counts of a batch; collective over the ranks of cp.
at::Tensor sequence_counts(const parallel::Microbatch& batch,
                           const parallel::ContextGroup& context);

/// Computes the scores of a frozen model from `hidden` [B, T, D], its states after the final norm.
SequenceScores sequence_scores(const parallel::Microbatch& batch, const at::Tensor& hidden,
                               const Head& head, const parallel::ContextGroup& context);

/// Provides the log-probabilities of a frozen reference model to a preference loss.
class ReferenceScores {
 public:
  virtual ~ReferenceScores() = default;

  /// Called like Objective::prepare.
  virtual void prepare(std::span<const parallel::Microbatch> /*micro_batches*/) {}

  /// Returns true if this rank can call sums(). Only the rank with the last pipeline stage knows the
  /// scores of a model.
  [[nodiscard]] virtual bool knows(const parallel::Microbatch& /*batch*/) const { return true; }

  /// Returns SequenceScores::sums of the reference; collective like sequence_scores. Called once
  /// per micro-batch, after the model's forward pass.
  [[nodiscard]] virtual at::Tensor sums(const parallel::Microbatch& batch) = 0;
};

/// The reference of a loss that has none: all scores are 0.
class NoReference final : public ReferenceScores {
 public:
  [[nodiscard]] at::Tensor sums(const parallel::Microbatch& batch) override;
};

/// Precomputed log-probabilities of one preference pair.
struct PairScore {
  std::uint64_t key = 0;  // Batch::pair_keys
  std::int64_t document = 0;
  std::array<double, 2> sums{};          // (chosen, rejected), like SequenceScores::sums
  std::array<std::int32_t, 2> counts{};  // like SequenceScores::counts
};

std::vector<PairScore> pair_scores(const parallel::Microbatch& batch, const SequenceScores& scores);

/// Reference scores that were computed once before training. A pair is found by its key, which
/// identifies its data set, length, tokens and targets.
class StoredReference final : public ReferenceScores {
 public:
  /// If two scores have the same key, the first is used. `where` names their origin in errors.
  StoredReference(std::span<const PairScore> scores, std::string where,
                  const parallel::ContextGroup& context = {});

  /// Throws Error(data) if a pair has no score or another number of targets. A sequence without
  /// targets in the batch has the sum 0.
  [[nodiscard]] at::Tensor sums(const parallel::Microbatch& batch) override;

 private:
  std::unordered_map<std::uint64_t, PairScore> scores_;  // by key
  std::string where_;
  parallel::ContextGroup context_;
};

}  // namespace trireme::objective
