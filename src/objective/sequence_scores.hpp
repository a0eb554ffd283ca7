#pragma once
#include <cstdint>
#include <span>
#include <string>
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

/// Scores that were computed once, before training.
class StoredReference final : public ReferenceScores {
 public:
  /// Of pair r of the set `sums` and `counts` hold chosen at 2 r and rejected at 2 r + 1; a sum that
  /// is not a number: unknown. `where` names their origin in errors.
  StoredReference(std::vector<double> sums, std::vector<std::int32_t> counts, std::string where,
                  const ContextGroup& context = {});

  /// By batch.pair_records. Throws Error(data) for a pair that is not there, or whose number of
  /// targets is another here than where the sums were computed.
  [[nodiscard]] at::Tensor sums(const Microbatch& batch) override;

 private:
  std::vector<double> sums_;
  std::vector<std::int32_t> counts_;
  std::string where_;
  ContextGroup context_;
};

}  // namespace trireme
