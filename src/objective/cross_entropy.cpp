#include "objective/cross_entropy.hpp"

#include "objective/head.hpp"

namespace trireme::objective {

at::Tensor CrossEntropy::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                 double grad_scale, ObjectiveGrads& saved) {
  return loss_of(batch, hidden, {.grad_scale = grad_scale, .device_grad_scale = batch.grad_scale},
                 saved);
}

void CrossEntropy::backward(ObjectiveGrads& saved) {
  add_head_gradient(registry_, head_, saved);
}

at::Tensor CrossEntropy::evaluate(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const {
  ObjectiveGrads unused;
  const at::Tensor loss_sum = loss_of(batch, hidden, {.want_grads = false}, unused);
  if (!token_bytes_.defined()) return loss_sum;
  return at::cat({loss_sum.to(at::kDouble).reshape({1}), text_sums(batch, hidden, loss_sum)});
}

bool CrossEntropy::count_text(const at::Tensor& token_bytes) {
  token_bytes_ = token_bytes;
  return true;
}

at::Tensor CrossEntropy::text_sums(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                   const at::Tensor& loss_sum) const {
  const at::NoGradGuard no_grad;
  const at::Tensor targets = batch.targets.flatten();  // [B * T]
  const at::Tensor has_target = targets.ne(kIgnoredTarget);
  const at::Tensor bytes = token_bytes_.index_select(0, targets.clamp_min(0)).mul(has_target);
  // The loss of the few targets without text is subtracted. With weights, the loss of all targets
  // with text is computed again.
  const bool weighted = batch.target_weights.defined();
  const at::Tensor counted = weighted ? bytes.gt(0) : bytes.eq(0).logical_and(has_target);
  const at::Tensor rows = counted.nonzero().flatten();
  at::Tensor loss = at::zeros({}, loss_sum.options());
  if (rows.numel() > 0) {
    const at::Tensor states = hidden.reshape({-1, hidden.size(-1)}).index_select(0, rows);
    loss =
        cross_entropy(head_of(registry_, head_, tensor_, path_), states,
                      targets.index_select(0, rows), {.want_grads = false, .targets_checked = true})
            .loss_sum;
  }
  if (!weighted) loss = loss_sum - loss;
  return at::stack({loss.to(at::kDouble).reshape({}), bytes.sum().to(at::kDouble)});
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
