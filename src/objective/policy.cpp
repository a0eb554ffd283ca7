#include "objective/policy.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"

namespace trireme::objective {
namespace {

/// Returns the names of the means; PolicyObjective::record() adds their sums in this order.
std::vector<std::string_view> policy_means(const PolicyObjective::Setup& setup) {
  std::vector<std::string_view> names{"entropy", "ratio_mean", "clip_fraction", "rollout_gap_mean"};
  if (setup.has_reference) names.emplace_back("kl_ref");
  if (setup.config.objective == "ppo") names.emplace_back("approx_kl");
  return names;
}

/// Returns the head for rows that are divided by the temperature T: then a soft-cap c of the logits
/// is c / T, because c * tanh(l / c) / T = c / T * tanh((l / T) / (c / T)).
Head at_temperature(Head head, double temperature) {
  head.softcap /= temperature;
  return head;
}

}  // namespace

at::Tensor policy_logprobs(const parallel::Microbatch& batch, const at::Tensor& hidden,
                           const Head& head, double temperature) {
  const at::NoGradGuard no_grad;
  const TargetRows targets(batch, hidden);
  return token_scores(at_temperature(head, temperature), targets.rows.div(temperature),
                      targets.targets, {.targets_checked = check_targets(batch, head.classes)})
      .log_probs.to(at::kCPU);
}

PolicyObjective::PolicyObjective(parallel::ParamRegistry& registry, const Setup& setup,
                                 Measures& measures)
    : registry_(registry),
      setup_(setup),
      measures_(measures),
      means_(measures, policy_means(setup)),
      ratio_max_(measures.declare({"ratio_max", Combine::max})),
      gap_max_(measures.declare({"rollout_gap_max", Combine::max})) {}

at::Tensor PolicyObjective::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                    double grad_scale, ObjectiveGrads& saved) {
  const at::NoGradGuard no_grad;
  const TargetRows targets(batch, hidden);
  if (targets.index.numel() > 0 && !batch.policy.defined())
    fail(ErrorKind::internal, "a policy loss received a batch without advantages");
  const Head whole = head_of(registry_, setup_.head, setup_.tensor, setup_.path);
  const double temperature = setup_.config.temperature;
  const Head head = at_temperature(first_classes(whole, setup_.classes), temperature);
  const at::Tensor rows = targets.rows.div(temperature);
  const bool checked = check_targets(batch, head.classes);
  const at::Tensor log_probs =
      token_scores(head, rows, targets.targets, {.targets_checked = checked}).log_probs;
  const at::Tensor policy = batch.policy.defined()
                                ? batch.policy
                                : at::empty({0, 8}, at::TensorOptions().dtype(at::kDouble));
  const PolicyTerms terms = policy_terms(setup_.config, log_probs, policy);
  const auto loss =
      cross_entropy(head, rows, targets.targets,
                    {.grad_scale = grad_scale,
                     .row_weights = terms.slopes.to(hidden.device(), ops::accumulate_type(hidden)),
                     .targets_checked = checked});
  at::Tensor grad_head = loss.grad_weight;
  if (grad_head.defined() && grad_head.size(0) < whole.weight.size(0))
    grad_head = at::constant_pad_nd(grad_head, {0, 0, 0, whole.weight.size(0) - grad_head.size(0)});
  saved = {targets.spread(loss.grad_x.div(temperature), hidden), grad_head};
  record(batch.step, log_probs.to(at::kCPU), terms);
  return terms.losses.sum().to(hidden.device());
}

void PolicyObjective::record(std::int64_t step, const at::Tensor& log_probs,
                             const PolicyTerms& terms) {
  const bool reports = setup_.tensor.rank() == 0;
  const auto sum = [&](const at::Tensor& values) {
    return reports ? values.sum().item<double>() : 0.0;
  };
  const auto largest = [](const at::Tensor& values) {
    return values.numel() > 0 ? values.max().item<double>() : 0;
  };
  std::vector<double> sums{-sum(log_probs), sum(terms.ratios), sum(terms.clipped.to(at::kDouble)),
                           sum(terms.gaps)};
  if (setup_.has_reference) sums.push_back(sum(terms.kl));
  if (setup_.config.objective == "ppo") sums.push_back(sum(terms.ratios.log().square().mul(0.5)));
  means_.add(step, sums, reports ? static_cast<double>(log_probs.numel()) : 0);
  if (step != step_) largest_ratio_ = largest_gap_ = 0;
  step_ = step;
  largest_ratio_ = std::max(largest_ratio_, largest(terms.ratios));
  largest_gap_ = std::max(largest_gap_, largest(terms.gaps));
  measures_.record(ratio_max_, largest_ratio_);
  measures_.record(gap_max_, largest_gap_);
}

void PolicyObjective::backward(ObjectiveGrads& saved) {
  add_head_gradient(registry_, setup_.head, saved);
}

at::Tensor PolicyObjective::evaluate(const parallel::Microbatch& /*batch*/,
                                     const at::Tensor& /*hidden*/) const {
  fail(ErrorKind::internal, "a policy loss has no validation");
}

}  // namespace trireme::objective
