#include "ops/plain_activation.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "core/error.hpp"
#include "core/operation_record.hpp"

namespace trireme::ops {
namespace {

struct ActivationRow {
  std::string_view name;
  at::Tensor (*forward)(const at::Tensor& x);
  at::Tensor (*backward)(const at::Tensor& grad_y, const at::Tensor& x);
};

/// One row for each of AllActivations; the ATen operation of the same name.
constexpr std::array kRows{
    ActivationRow{
        Silu::names.name, [](const at::Tensor& x) { return at::silu(x); },
        [](const at::Tensor& grad_y, const at::Tensor& x) { return at::silu_backward(grad_y, x); }},
    ActivationRow{GeluTanh::names.name, [](const at::Tensor& x) { return at::gelu(x, "tanh"); },
                  [](const at::Tensor& grad_y, const at::Tensor& x) {
                    return at::gelu_backward(grad_y, x, "tanh");
                  }},
    ActivationRow{
        Relu2::names.name, [](const at::Tensor& x) { return at::relu(x).square(); },
        [](const at::Tensor& grad_y, const at::Tensor& x) { return grad_y * at::relu(x).mul_(2); }},
    ActivationRow{
        Gelu::names.name, [](const at::Tensor& x) { return at::gelu(x); },
        [](const at::Tensor& grad_y, const at::Tensor& x) { return at::gelu_backward(grad_y, x); }},
};

static_assert(kRows.size() == AllActivations::names.size());

const ActivationRow& row_of(Activation activation) {
  const std::string_view name = AllActivations::names.at(static_cast<std::size_t>(activation)).name;
  for (const ActivationRow& row : kRows)
    if (row.name == name) return row;
  fail(ErrorKind::internal, "no activation {} for an MLP without gate", name);
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t activation,
                            const LateResultPtr& late) {
    ctx->save_for_backward({x});
    ctx->saved_data["activation"] = activation;
    keep(ctx, late);
    return activation_forward(x, Activation{activation});
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Activation activation{ctx->saved_data["activation"].toInt()};
    const at::Tensor x = ctx->get_saved_variables()[0];
    if (const LateResultPtr late = awaited_result(ctx))
      late->give(activation_forward(x, activation));
    return {activation_backward(grads[0], x, activation), {}, {}};
  }
};

}  // namespace

at::Tensor activation_forward(const at::Tensor& x, Activation activation) {
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::activation);
  return row_of(activation).forward(x);
}

at::Tensor activation_backward(const at::Tensor& grad_y, const at::Tensor& x,
                               Activation activation) {
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::activation);
  return row_of(activation).backward(grad_y, x);
}

at::Tensor activated(const at::Tensor& x, Activation activation, const LateResultPtr& late) {
  return ActivationFunction::apply(x, static_cast<std::int64_t>(activation), late);
}

}  // namespace trireme::ops
