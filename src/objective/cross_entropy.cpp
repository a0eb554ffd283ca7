#include "objective/cross_entropy.hpp"

#include "objective/vocab_parallel.hpp"

namespace trireme {

ops::LinearCrossEntropyOutput CrossEntropy::loss_of(
    const Microbatch& batch, const at::Tensor& hidden,
    const ops::LinearCrossEntropySetup& setup) const {
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});  // [B * T, D]
  const at::Tensor targets = batch.targets.flatten();
  const at::Tensor weight = registry_.weight(head_);
  if (tensor_.size() == 1) return ops::linear_cross_entropy(rows, weight, targets, setup, path_);
  const Slice& slice = registry_.layout().param(head_).slice;
  return vocab_parallel_cross_entropy(
      rows, weight, targets, {tensor_.group(), slice.offset[0], registry_.spec(head_).shape[0]},
      setup);
}

at::Tensor CrossEntropy::forward(const Microbatch& batch, const at::Tensor& hidden,
                                 double grad_scale, ObjectiveTape& tape) {
  const auto loss = loss_of(
      batch, hidden, {.grad_scale = grad_scale, .want_grad_weight = registry_.trained({head_})});
  tape = {loss.grad_x.view_as(hidden), loss.grad_weight};
  return loss.loss_sum;
}

at::Tensor CrossEntropy::backward(ObjectiveTape& tape) {
  if (registry_.trained({head_})) registry_.add_gradient({head_}, tape.grad_head);
  at::Tensor grad = std::move(tape.grad_hidden);
  tape = {};
  return grad;
}

at::Tensor CrossEntropy::evaluate(const Microbatch& batch, const at::Tensor& hidden) const {
  return loss_of(batch, hidden, {.want_grads = false}).loss_sum;
}

}  // namespace trireme
