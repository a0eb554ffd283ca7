#include "objective/cross_entropy.hpp"

#include "objective/head.hpp"

namespace trireme::objective {

at::Tensor CrossEntropy::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                 double grad_scale, ObjectiveGrads& saved) {
  return loss_of(batch, hidden, {.grad_scale = grad_scale}, saved);
}

void CrossEntropy::backward(ObjectiveGrads& saved) {
  add_head_gradient(registry_, head_, saved);
}

at::Tensor CrossEntropy::evaluate(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const {
  ObjectiveGrads unused;
  return loss_of(batch, hidden, {.want_grads = false}, unused);
}

at::Tensor CrossEntropy::loss_of(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                 LinearCrossEntropySetup setup, ObjectiveGrads& saved) const {
  const at::NoGradGuard no_grad;
  const Head head = head_of(registry_, head_, tensor_, path_);
  const auto type = ops::accumulate_type(hidden);
  const bool weighted = batch.target_weights.defined();
  setup.targets_checked = check_targets(batch, head.classes);
  LinearCrossEntropyOutput loss;
  if (rows_ == LossRows::all) {
    if (weighted) setup.row_weights = batch.target_weights.flatten().to(type);
    const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});  // [B * T, D]
    loss = cross_entropy(head, rows, batch.targets.flatten(), setup);
    if (setup.want_grads) saved = {loss.grad_x.view_as(hidden), loss.grad_weight};
  } else {
    const TargetRows targets(batch, hidden);
    if (weighted) setup.row_weights = targets.of(batch.target_weights).to(type);
    loss = cross_entropy(head, targets.rows, targets.targets, setup);
    if (setup.want_grads) saved = {targets.spread(loss.grad_x, hidden), loss.grad_weight};
  }
  return loss.loss_sum;
}

}  // namespace trireme::objective
