#pragma once
#include "objective/linear_cross_entropy.hpp"
#include "objective/objective.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme {

/// The output matrix as a rank holds it: the rows of classes [first, first + weight.size(0)) of
/// `classes`, all of them where `tensor` is one rank. Functions of it are collective over `tensor`.
struct Head {
  at::Tensor weight;  // [its classes, D]
  TensorGroup tensor = {};
  std::int64_t first = 0;
  std::int64_t classes = 0;
  ops::Path path = ops::Path::fast;
  bool trained = true;  // has a gradient
};

/// Of a parameter [V, D] of `registry`; a view, to be taken anew for every use.
Head head_of(ParamRegistry& registry, ParamId id, const TensorGroup& tensor, ops::Path path);

/// An objective's backward: adds the tape's gradient of the head to the registry, unless that is
/// frozen, and clears the tape.
void add_head_gradient(ParamRegistry& registry, ParamId head, ObjectiveTape& tape);

/// ops::linear_cross_entropy of rows [N, D] and this head. grad_x is the part of this rank's
/// classes, grad_weight that of its rows, of a trained head.
ops::LinearCrossEntropyOutput cross_entropy(const Head& head, const at::Tensor& rows,
                                            const at::Tensor& targets,
                                            ops::LinearCrossEntropySetup setup);

/// ops::token_scores of rows [N, D] and this head, the same on all ranks.
ops::TokenScores token_scores(const Head& head, const at::Tensor& rows, const at::Tensor& targets,
                              const ops::TokenScoresSetup& setup = {});

/// The N tokens of a batch that have a target; the others need no logits.
struct TargetRows {
  at::Tensor index;    // [N] int64, of B * T
  at::Tensor rows;     // [N, D]
  at::Tensor targets;  // [N]

  /// Waits for a GPU.
  TargetRows(const Microbatch& batch, const at::Tensor& hidden);

  /// per_token [B, T] to [N].
  [[nodiscard]] at::Tensor of(const at::Tensor& per_token) const;

  /// The gradient of `hidden` [B, T, D] from that of rows [N, D].
  [[nodiscard]] at::Tensor spread(const at::Tensor& grad_rows, const at::Tensor& hidden) const;
};

}  // namespace trireme
