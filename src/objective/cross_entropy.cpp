#include "objective/cross_entropy.hpp"

#include "objective/linear_cross_entropy.hpp"

namespace trireme {

at::Tensor CrossEntropy::forward(const Microbatch& batch, const at::Tensor& hidden,
                                 double grad_scale, ObjectiveTape& tape) {
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});  // [B * T, D]
  const auto loss = ops::linear_cross_entropy(
      rows, registry_.weight(head_), batch.targets.flatten(), {.grad_scale = grad_scale}, path_);
  tape = {loss.grad_x.view_as(hidden), loss.grad_weight};
  return loss.loss_sum;
}

at::Tensor CrossEntropy::backward(ObjectiveTape& tape) {
  registry_.add_gradient({head_}, tape.grad_head);
  at::Tensor grad = std::move(tape.grad_hidden);
  tape = {};
  return grad;
}

at::Tensor CrossEntropy::evaluate(const Microbatch& batch, const at::Tensor& hidden) const {
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});
  return ops::linear_cross_entropy(rows, registry_.weight(head_), batch.targets.flatten(),
                                   {.want_grads = false}, path_)
      .loss_sum;
}

}  // namespace trireme
