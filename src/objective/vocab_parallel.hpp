#pragma once
#include "comm/communicator.hpp"
#include "objective/linear_cross_entropy.hpp"

namespace trireme {

/// The rows of the output matrix that a rank holds: classes [first, first + weight.size(0)) of
/// `classes`.
struct VocabPart {
  Communicator& group;
  std::int64_t first = 0;
  std::int64_t classes = 0;
};

/// ops::linear_cross_entropy with the classes dealt over a group: x [N, D], the same on every rank;
/// weight [its classes, D]. Of every chunk of rows the ranks share a maximum, then a sum of
/// exponentials and the target's logit: 12 bytes a row in fp32, no logits. The loss is whole on
/// every rank; grad_x is the part of this rank's classes, which the caller adds up, grad_weight
/// that of its rows. Errors as there. Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
ops::LinearCrossEntropyOutput vocab_parallel_cross_entropy(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, const VocabPart& part,
    const ops::LinearCrossEntropySetup& setup);

/// ops::token_scores with the classes dealt so: whole on every rank.
ops::TokenScores vocab_parallel_token_scores(const at::Tensor& x, const at::Tensor& weight,
                                             const at::Tensor& targets, const VocabPart& part,
                                             const ops::TokenScoresSetup& setup);

}  // namespace trireme
