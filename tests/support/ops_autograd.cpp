#include "support/ops_autograd.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace trireme::ops::testing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double eps, bool fast) {
    auto [y, rstd] =
        ops::rms_norm_forward(x, weight, eps, fast ? ops::Path::fast : ops::Path::plain);
    ctx->save_for_backward({x, weight, rstd});
    ctx->saved_data["fast"] = fast;
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto path = ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
    auto out = ops::rms_norm_backward(grads[0], saved[0], saved[1], saved[2], path);
    return {out.x, out.weight.to(saved[1].scalar_type()), {}, {}};
  }
};

struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& residual,
                             const at::Tensor& weight, double eps, bool fast) {
    auto [sum, y, rstd] = ops::add_rms_norm_forward(x, residual, weight, eps,
                                                    fast ? ops::Path::fast : ops::Path::plain);
    ctx->save_for_backward({sum, weight, rstd});
    ctx->saved_data["fast"] = fast;
    ctx->set_materialize_grads(false);
    return {sum, y};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    if (!grads[1].defined()) return {grads[0], grads[0], {}, {}, {}};
    const auto path = ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
    auto out = ops::add_rms_norm_backward(grads[1], grads[0], saved[0], saved[1], saved[2], path);
    return {out.x, out.x, out.weight.to(saved[1].scalar_type()), {}, {}};
  }
};

void save_setup(AutogradContext* ctx, const ops::QkNormRope& setup, bool fast, tensor_list inputs) {
  inputs.insert(inputs.end(), {setup.q_weight, setup.k_weight, setup.tables.cos, setup.tables.sin,
                               setup.positions});
  ctx->save_for_backward(std::move(inputs));
  ctx->saved_data["eps"] = setup.eps;
  ctx->saved_data["fast"] = fast;
}

ops::QkNormRope load_setup(AutogradContext* ctx, const tensor_list& saved, std::size_t first) {
  return {saved[first],
          saved[first + 1],
          ctx->saved_data["eps"].toDouble(),
          {saved[first + 2], saved[first + 3]},
          saved[first + 4]};
}

/// Returns `weight` as an optional: a function accepts an undefined tensor only as an empty
/// optional.
std::optional<at::Tensor> given(const at::Tensor& weight) {
  return weight.defined() ? std::optional(weight) : std::nullopt;
}

at::Tensor as_weight_grad(const at::Tensor& grad, const at::Tensor& weight) {
  return weight.defined() ? grad.to(weight.scalar_type()) : at::Tensor();
}

// Weights are passed again as plain arguments, so that autograd sees them.
struct QkvNormRopeFunction : torch::autograd::Function<QkvNormRopeFunction> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& qkv,
                             const std::optional<at::Tensor>& /*q_weight*/,
                             const std::optional<at::Tensor>& /*k_weight*/, std::int64_t num_heads,
                             std::int64_t num_kv_heads, const ops::QkNormRope& setup, bool fast) {
    save_setup(ctx, setup, fast, {qkv});
    auto out = ops::qkv_norm_rope_forward(qkv, num_heads, num_kv_heads, setup,
                                          fast ? ops::Path::fast : ops::Path::plain);
    return {out.q, out.k, out.v};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto setup = load_setup(ctx, saved, 1);
    const auto path = ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
    auto out = ops::qkv_norm_rope_backward(grads[0], grads[1], grads[2], saved[0], setup, path);
    return {out.qkv,
            as_weight_grad(out.q_weight, setup.q_weight),
            as_weight_grad(out.k_weight, setup.k_weight),
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, ops::Path path) {
  return RmsNormFunction::apply(x, weight, eps, path == ops::Path::fast);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight, double eps,
                                               ops::Path path) {
  auto out = AddRmsNormFunction::apply(x, residual, weight, eps, path == ops::Path::fast);
  return {out[0], out[1]};
}

std::pair<at::Tensor, at::Tensor> qk_norm_rope(const at::Tensor& q, const at::Tensor& k,
                                               const ops::QkNormRope& setup, ops::Path path) {
  auto out = qkv_norm_rope(at::cat({q, k, at::zeros_like(k)}, 2).flatten(2), q.size(2), k.size(2),
                           setup, path);
  return {out.q, out.k};
}

ops::QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                                 std::int64_t num_kv_heads, const ops::QkNormRope& setup,
                                 ops::Path path) {
  auto out = QkvNormRopeFunction::apply(qkv, given(setup.q_weight), given(setup.k_weight),
                                        num_heads, num_kv_heads, setup, path == ops::Path::fast);
  return {out[0], out[1], out[2]};
}

}  // namespace trireme::ops::testing
