#include "objective/value.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.hpp"
#include "objective/bradley_terry.hpp"
#include "objective/head.hpp"

namespace trireme::objective {
namespace {

/// Columns of Microbatch::policy.
enum Column { kWeight = 5, kValue = 6, kValueTarget = 7 };

struct ValueTerms {
  at::Tensor losses;  // [N] fp64
  at::Tensor slopes;  // [N] fp64: d loss / d value
};

ValueTerms value_terms(const at::Tensor& values, const at::Tensor& policy, double clip) {
  ValueTerms terms{at::empty_like(values), at::empty_like(values)};
  const auto targets = policy.accessor<double, 2>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.const_data_ptr<double>()[i];
    const double old = targets[i][kValue];
    const double away = value - targets[i][kValueTarget];
    const double limited = std::clamp(value, old - clip, old + clip);
    const double limited_away = limited - targets[i][kValueTarget];
    const bool is_clipped = limited_away * limited_away > away * away;
    const double weight = targets[i][kWeight];
    const double used = is_clipped ? limited_away : away;
    terms.losses.mutable_data_ptr<double>()[i] = weight * 0.5 * used * used;
    terms.slopes.mutable_data_ptr<double>()[i] = is_clipped ? 0 : weight * away;
  }
  return terms;
}

}  // namespace

ValueObjective::ValueObjective(parallel::ParamRegistry& registry, const Setup& setup)
    : registry_(registry), setup_(setup) {
  if (setup.has_head) head_ = declare_reward_head(registry, setup.hidden_size);
}

at::Tensor ValueObjective::values(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  return rewards_of(TargetRows(batch, hidden).rows, registry_.weight(head_))
      .to(at::kCPU, at::kDouble);
}

at::Tensor ValueObjective::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                   double grad_scale, ObjectiveGrads& saved) {
  const at::NoGradGuard no_grad;
  const TargetRows targets(batch, hidden);
  const at::Tensor head = registry_.weight(head_);
  const at::Tensor values = rewards_of(targets.rows, head).to(at::kCPU, at::kDouble).contiguous();
  if (values.numel() > 0 && !batch.policy.defined())
    fail(ErrorKind::internal, "a critic received a batch without returns");
  const ValueTerms terms = values.numel() > 0
                               ? value_terms(values, batch.policy, setup_.config.clip)
                               : ValueTerms{values, values};
  const at::ScalarType type = ops::accumulate_type(hidden);
  const at::Tensor slopes = (terms.slopes * (grad_scale * setup_.config.weight))
                                .to(hidden.device(), type)
                                .unsqueeze(1);  // [N, 1]
  saved.grad_head = (slopes * targets.rows.to(type)).sum(0, /*keepdim=*/true);
  const at::Tensor grad_rows = (slopes * head.to(type)).to(hidden.scalar_type());
  // The ranks of tp add up their gradients of the hidden states, so one of them gives the gradient.
  saved.grad_hidden =
      setup_.tensor.rank() == 0 ? targets.spread(grad_rows, hidden) : at::zeros_like(hidden);
  return terms.losses.sum().to(hidden.device());
}

void ValueObjective::backward(ObjectiveGrads& saved) {
  registry_.run_or_defer([this, grad = saved.grad_head] {
    registry_.add_gradient({head_}, grad);
    // The loss gives the output matrix no gradient, but its unit waits for one.
    static_cast<void>(registry_.master_grad(setup_.lm_head));  // zeros
    registry_.gradient_added({setup_.lm_head});
  });
  saved = {};
}

at::Tensor ValueObjective::evaluate(const parallel::Microbatch& /*batch*/,
                                    const at::Tensor& /*hidden*/) const {
  fail(ErrorKind::internal, "a critic has no validation");
}

}  // namespace trireme::objective
