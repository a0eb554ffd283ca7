#include "objective/weighted_sequences.hpp"

#include <ATen/ATen.h>

namespace trireme::objective {

WeightedSequences::WeightedSequences(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                     const Head& head, const parallel::ContextGroup& context)
    : hidden_(hidden),
      head_(head),
      targets_(batch, hidden),
      sequences_(sequences_of(batch, targets_)),
      targets_checked_(check_targets(batch, head.classes)),
      scores_(sum_sequences(
          batch.num_pairs, sequences_,
          token_scores(head, targets_.rows, targets_.targets, {.targets_checked = targets_checked_})
              .log_probs,
          context)) {}

ObjectiveGrads WeightedSequences::gradients(const at::Tensor& row_weights,
                                            double grad_scale) const {
  const auto loss =
      cross_entropy(head_, targets_.rows, targets_.targets,
                    {.grad_scale = grad_scale,
                     .row_weights = row_weights.index_select(0, sequences_)
                                        .to(hidden_.device(), ops::accumulate_type(hidden_)),
                     .targets_checked = targets_checked_});
  return {targets_.spread(loss.grad_x, hidden_), loss.grad_weight};
}

at::Tensor evaluation_sums(const at::Tensor& losses, std::span<const double> means,
                           const at::Tensor& hidden, bool reports) {
  std::vector<double> sums{losses.sum().item<double>()};
  sums.insert(sums.end(), means.begin(), means.end());
  return at::tensor(sums, hidden.options().dtype(at::kDouble)).mul_(reports ? 1 : 0);
}

}  // namespace trireme::objective
