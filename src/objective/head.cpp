#include "objective/head.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "objective/vocab_parallel.hpp"

namespace trireme::objective {

Head head_of(parallel::ParamRegistry& registry, parallel::ParamId id,
             const parallel::TensorGroup& tensor, ops::Path path) {
  const parallel::Slice& slice = registry.layout().param(id).slice;
  return {registry.weight(id),        tensor, slice.offset[0],
          registry.spec(id).shape[0], path,   registry.trained({id}),
          registry.spec(id).softcap};
}

Head first_classes(Head head, std::int64_t classes) {
  TRIREME_ASSERT(head.first < classes && classes <= head.classes);
  head.weight = head.weight.narrow(0, 0, std::min(head.weight.size(0), classes - head.first));
  head.classes = classes;
  return head;
}

void add_head_gradient(parallel::ParamRegistry& registry, parallel::ParamId head,
                       ObjectiveGrads& saved) {
  if (registry.trained({head}))
    registry.run_or_defer(
        [&registry, head, grad = saved.grad_head] { registry.add_gradient({head}, grad); });
  saved = {};
}

LinearCrossEntropyOutput cross_entropy(const Head& head, const at::Tensor& rows,
                                       const at::Tensor& targets, LinearCrossEntropySetup setup) {
  setup.want_grad_weight = setup.want_grad_weight && head.trained;
  setup.softcap = head.softcap;
  if (head.tensor.size() == 1)
    return linear_cross_entropy(rows, head.weight, targets, setup, head.path);
  return vocab_parallel_cross_entropy(rows, head.weight, targets,
                                      {head.tensor.group(), head.first, head.classes}, setup,
                                      head.path);
}

TokenScores token_scores(const Head& head, const at::Tensor& rows, const at::Tensor& targets,
                         const TokenScoresSetup& given) {
  TokenScoresSetup setup = given;
  setup.softcap = head.softcap;
  if (head.tensor.size() == 1) return token_scores(rows, head.weight, targets, setup, head.path);
  return vocab_parallel_token_scores(rows, head.weight, targets,
                                     {head.tensor.group(), head.first, head.classes}, setup);
}

bool check_targets(const parallel::Microbatch& batch, std::int64_t classes) {
  if (!batch.target_tokens) return false;
  const parallel::TargetTokens& known = *batch.target_tokens;
  for (const std::int64_t target : {known.least, known.most})
    if (!known.tokens.empty() && (target < 0 || target >= classes)) fail_target(target, classes);
  return true;
}

at::Tensor target_index(const parallel::Microbatch& batch) {
  if (batch.target_tokens) return batch.target_tokens->index;
  return batch.targets.flatten().ne(kIgnoredTarget).nonzero().squeeze(1);
}

TargetRows::TargetRows(const parallel::Microbatch& batch, const at::Tensor& hidden)
    : index(target_index(batch)),
      rows(hidden.reshape({-1, hidden.size(-1)}).index_select(0, index)),
      targets(of(batch.targets)) {}

at::Tensor TargetRows::of(const at::Tensor& per_token) const {
  return per_token.flatten().index_select(0, index);
}

at::Tensor TargetRows::spread(const at::Tensor& grad_rows, const at::Tensor& hidden) const {
  const at::Tensor grad =
      at::zeros({hidden.numel() / hidden.size(-1), hidden.size(-1)}, hidden.options());
  return grad.index_copy_(0, index, grad_rows).view_as(hidden);
}

}  // namespace trireme::objective
