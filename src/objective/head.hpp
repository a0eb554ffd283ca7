#pragma once
#include "objective/linear_cross_entropy.hpp"
#include "objective/objective.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme::objective {

/// The output matrix as one rank holds it: the rows of classes [first, first + weight.size(0)) of
/// `classes`, all of them if `tensor` is a single rank. Its functions are collective over `tensor`.
struct Head {
  at::Tensor weight;  // [local classes, D]
  parallel::TensorGroup tensor = {};
  std::int64_t first = 0;
  std::int64_t classes = 0;
  ops::Path path = ops::Path::fast;
  bool trained = true;  // false for a frozen head
  double softcap = 0;   // soft-cap of the logits (ParamSpec)
};

/// Returns the head of parameter `id` [V, D]. The weight is a view, valid for one use.
Head head_of(parallel::ParamRegistry& registry, parallel::ParamId id,
             const parallel::TensorGroup& tensor, ops::Path path);

/// Returns the head without the rows from class `classes` on: rows that pad the vocabulary. Each rank
/// of tp needs at least one other row.
Head first_classes(Head head, std::int64_t classes);

/// The backward of an objective: adds the head's gradient from `saved` to the registry, unless the
/// head is frozen, and clears `saved`.
void add_head_gradient(parallel::ParamRegistry& registry, parallel::ParamId head,
                       ObjectiveGrads& saved);

/// Computes linear_cross_entropy of rows [N, D] with this head. grad_x is the partial gradient
/// of the local classes. grad_weight is the gradient of the local rows, only for a trained head.
LinearCrossEntropyOutput cross_entropy(const Head& head, const at::Tensor& rows,
                                       const at::Tensor& targets, LinearCrossEntropySetup setup);

/// Computes token_scores of rows [N, D] with this head; the result is the same on all ranks.
TokenScores token_scores(const Head& head, const at::Tensor& rows, const at::Tensor& targets,
                         const TokenScoresSetup& setup = {});

/// Compares the targets of a batch with the number of classes. Returns false if the host does not
/// know the targets (batch.target_tokens is null). Throws Error(data) like check_targets().
bool check_targets(const parallel::Microbatch& batch, std::int64_t classes);

/// Returns the indices [N] int64 into the B * T tokens that have a target, on the device. Waits for
/// a GPU if batch.target_tokens is null.
at::Tensor target_index(const parallel::Microbatch& batch);

/// The N tokens of a batch that have a target. Other tokens need no logits.
struct TargetRows {
  at::Tensor index;    // [N] int64: index into the B * T tokens
  at::Tensor rows;     // [N, D]
  at::Tensor targets;  // [N]

  /// Waits for a GPU if batch.target_tokens is null.
  TargetRows(const parallel::Microbatch& batch, const at::Tensor& hidden);

  /// Selects per_token [B, T] at these tokens: [N].
  [[nodiscard]] at::Tensor of(const at::Tensor& per_token) const;

  /// Returns the gradient of `hidden` [B, T, D] from the gradient of rows [N, D].
  [[nodiscard]] at::Tensor spread(const at::Tensor& grad_rows, const at::Tensor& hidden) const;
};

}  // namespace trireme::objective
