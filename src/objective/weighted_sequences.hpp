#pragma once
#include <span>
#include <vector>

#include "objective/objective.hpp"
#include "objective/sequence_scores.hpp"

namespace trireme::objective {

/// The parts that the losses of preference pairs and of labeled answers share. Both compute the
/// log-probabilities of sequences, and then cross entropy with one weight per sequence.
class WeightedSequences {
 public:
  /// Computes the scores of the sequences of `batch`; collective over the ranks of cp. `hidden` is
  /// [B, T, D]. The arguments must outlive this object.
  WeightedSequences(const parallel::Microbatch& batch, const at::Tensor& hidden, const Head& head,
                    const parallel::ContextGroup& context);

  [[nodiscard]] const SequenceScores& scores() const { return scores_; }

  /// Returns the gradients of grad_scale * sum of row_weights[s] * (-log p) over all targets, where
  /// s is the sequence of a target. `row_weights`: [2 * num_pairs] fp64 in host memory.
  [[nodiscard]] ObjectiveGrads gradients(const at::Tensor& row_weights, double grad_scale) const;

 private:
  const at::Tensor& hidden_;
  const Head& head_;
  TargetRows targets_;
  at::Tensor sequences_;
  bool targets_checked_;
  SequenceScores scores_;
};

/// Returns the result of Objective::evaluate: the sum of the losses and the sums of `means`; zeros
/// on ranks that do not report (`reports` is false).
at::Tensor evaluation_sums(const at::Tensor& losses, std::span<const double> means,
                           const at::Tensor& hidden, bool reports);

}  // namespace trireme::objective
