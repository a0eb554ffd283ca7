#pragma once
#include "comm/communicator.hpp"
#include "objective/linear_cross_entropy.hpp"

namespace trireme::objective {

/// The rows of the output matrix on one rank: classes [first, first + weight.size(0)) of `classes`.
struct VocabShard {
  comm::Communicator& group;
  std::int64_t first = 0;
  std::int64_t classes = 0;
};

/// Like linear_cross_entropy, with the classes split over a group. x [N, D] is the same on
/// every rank; weight is [local classes, D]. For every chunk of rows, the ranks exchange a maximum,
/// then a sum of exponentials and the target's logit (12 bytes per row in fp32), but no logits.
/// Every rank returns the whole loss. grad_x is the partial gradient of the local classes, which
/// the caller sums over ranks; grad_weight is the gradient of the local rows. Throws like
/// linear_cross_entropy. Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
LinearCrossEntropyOutput vocab_parallel_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                                      const at::Tensor& targets,
                                                      const VocabShard& part,
                                                      const LinearCrossEntropySetup& setup,
                                                      ops::Path path = ops::Path::fast);

/// Like token_scores, with the classes split over a group; equal results on all ranks.
TokenScores vocab_parallel_token_scores(const at::Tensor& x, const at::Tensor& weight,
                                        const at::Tensor& targets, const VocabShard& part,
                                        const TokenScoresSetup& setup);

}  // namespace trireme::objective
