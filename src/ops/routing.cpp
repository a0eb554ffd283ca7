#include "ops/routing.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"

namespace trireme::ops {
namespace {

/// Returns the sums of the chosen scores, [rows, 1]. The small number is that of DeepSeek-V3: all
/// chosen sigmoids may be 0.
at::Tensor sum_of(const at::Tensor& chosen) {
  return chosen.sum(-1, /*keepdim=*/true) + 1e-20;
}

/// Divides weights by their sum if `normalize`, as DeepSeek and Qwen do.
at::Tensor divided(const at::Tensor& chosen, bool normalize) {
  return normalize ? chosen / sum_of(chosen) : chosen;
}

/// Returns the row of each assignment.
at::Tensor inverse_of(const at::Tensor& order) {
  const at::Tensor inverse = at::empty_like(order);
  return inverse.scatter_(0, order, at::arange(order.size(0), order.options()));
}

}  // namespace

at::Tensor router_scores(const at::Tensor& logits, RouterScore kind) {
  return kind == RouterScore::softmax ? logits.softmax(-1) : logits.sigmoid();
}

Routing pick_experts(const at::Tensor& scores, const at::Tensor& bias, std::int64_t k,
                     bool normalize) {
  const at::Tensor wanted = bias.defined() ? scores + bias : scores;
  const auto [highest, experts] = wanted.topk(k, -1, /*largest=*/true, /*sorted=*/true);
  return {experts, gates_of(scores, experts, normalize)};
}

at::Tensor gates_of(const at::Tensor& scores, const at::Tensor& experts, bool normalize) {
  return divided(scores.gather(-1, experts), normalize);
}

at::Tensor router_backward(const at::Tensor& grad_gates, const at::Tensor& direct,
                           const at::Tensor& scores, const at::Tensor& experts, RouterScore kind,
                           bool normalize) {
  at::Tensor of_chosen = grad_gates;
  if (normalize && experts.size(-1) == 1) {
    of_chosen = at::zeros_like(grad_gates);  // the weight is always 1
  } else if (normalize) {
    const at::Tensor chosen = scores.gather(-1, experts);
    const at::Tensor sum = sum_of(chosen);
    of_chosen = (grad_gates - (grad_gates * chosen).sum(-1, true) / sum) / sum;
  }
  at::Tensor of_scores = at::zeros_like(scores).scatter_(-1, experts, of_chosen);
  if (direct.defined()) of_scores.add_(direct);
  if (kind == RouterScore::sigmoid) return of_scores * scores * (1 - scores);
  return scores * (of_scores - (of_scores * scores).sum(-1, true));
}

OrderedRows order_by_expert(const at::Tensor& experts, std::int64_t num_experts) {
  const auto [sorted, order] =
      experts.flatten().sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  return {order, at::searchsorted(sorted, at::arange(num_experts + 1, sorted.options()))};
}

ExpertRows sort_by_expert(const at::Tensor& experts, std::int64_t num_experts) {
  const auto [order, on_device] = order_by_expert(experts, num_experts);
  const at::Tensor bounds = on_device.to(at::kCPU);
  const auto* const first = bounds.const_data_ptr<std::int64_t>();
  return {order, {first, first + num_experts + 1}};
}

at::Tensor to_rows(const at::Tensor& x, const at::Tensor& order, std::int64_t k) {
  return x.index_select(0, k == 1 ? order : order.div(k, "floor"));
}

at::Tensor from_rows(const at::Tensor& rows, const at::Tensor& order, std::int64_t k) {
  const at::Tensor by_token = rows.index_select(0, inverse_of(order));
  return k == 1 ? by_token : by_token.view({rows.size(0) / k, k, rows.size(1)}).sum(1);
}

}  // namespace trireme::ops
