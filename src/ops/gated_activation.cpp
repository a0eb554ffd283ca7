#include "ops/gated_activation.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/cuda/gated_activation.hpp"
#include "ops/operations.hpp"

namespace trireme::ops {
namespace {

/// The arithmetic of activations.hpp on whole tensors.
struct TensorMath {
  using Number = double;

  static at::Tensor sigmoid(const at::Tensor& x) { return at::sigmoid(x); }

  static at::Tensor silu(const at::Tensor& x) { return at::silu(x); }

  static at::Tensor relu(const at::Tensor& x) { return at::relu(x); }

  static at::Tensor erf(const at::Tensor& x) { return at::erf(x); }

  static at::Tensor exp(const at::Tensor& x) { return at::exp(x); }

  static at::Tensor clamp(const at::Tensor& x, double most) { return x.clamp(-most, most); }
};

using Halves = GatedGrads<at::Tensor>;

Halves halves(const at::Tensor& gate_up) {
  if (gate_up.dim() < 1 || gate_up.size(-1) % 2 != 0) {
    fail(ErrorKind::internal, "gated_activation: gate_up {} must be [.., 2F]", gate_up.sizes());
  }
  const auto width = gate_up.size(-1) / 2;
  return {gate_up.narrow(-1, 0, width), gate_up.narrow(-1, width, width)};
}

at::Tensor plain_gated(const at::Tensor& gate_up, Activation activation) {
  const auto [gate, up] = halves(gate_up.to(accumulate_type(gate_up)));
  at::Tensor y;
  AllActivations::pick(static_cast<std::int64_t>(activation), [&, &g = gate, &u = up](auto row) {
    y = decltype(row)::template forward<TensorMath>(g, u);
  });
  return y.to(gate_up.scalar_type());
}

at::Tensor plain_gated_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                                Activation activation, at::Tensor* y) {
  if (y != nullptr) *y = plain_gated(gate_up, activation);
  const auto type = accumulate_type(gate_up);
  const auto [gate, up] = halves(gate_up.to(type));
  Halves grads;
  AllActivations::pick(static_cast<std::int64_t>(activation), [&, &g = gate, &u = up](auto row) {
    grads = decltype(row)::template backward<TensorMath>(g, u, grad_y.to(type));
  });
  return at::cat({grads.gate, grads.up}, -1).to(gate_up.scalar_type());
}

/// Returns gate_up as rows [rows, 2F], without a copy if its strides allow it.
at::Tensor as_rows(const at::Tensor& gate_up) {
  const auto width = gate_up.size(-1);
  return last_dim_contiguous(gate_up.reshape({width == 0 ? 0 : gate_up.numel() / width, width}));
}

/// Returns the arguments that forward and backward share, for rows [first, last).
kernels::Gated kernel_call(const at::Tensor& gate_up, Activation activation, std::int64_t first,
                           std::int64_t last) {
  kernels::Gated call{};
  call.element = element_of(gate_up);
  call.activation = static_cast<std::int64_t>(activation);
  call.gate_up = element_at(gate_up, first * gate_up.stride(0));
  call.stride = gate_up.stride(0);
  call.rows = last - first;
  call.width = gate_up.size(1) / 2;
  return call;
}

at::Tensor empty_half(const at::Tensor& gate_up) {
  auto shape = gate_up.sizes().vec();
  shape.back() /= 2;
  return at::empty(shape, gate_up.options());
}

at::Tensor cpu_gated(const at::Tensor& gate_up_in, Activation activation) {
  const auto gate_up = as_rows(gate_up_in);
  auto y = empty_half(gate_up_in);
  for_rows(gate_up.size(0), [&](std::int64_t first, std::int64_t last) {
    auto call = kernel_call(gate_up, activation, first, last);
    call.y = element_at(y, first * call.width);
    kernels::table().gated_forward(call);
  });
  return y;
}

at::Tensor cpu_gated_backward(const at::Tensor& grad_y_in, const at::Tensor& gate_up_in,
                              Activation activation, at::Tensor* y) {
  const auto gate_up = as_rows(gate_up_in);
  const auto grad_y = grad_y_in.contiguous();
  if (y != nullptr) *y = empty_half(gate_up_in);
  auto grad = at::empty(gate_up_in.sizes(), gate_up_in.options());
  for_row_chunks(gate_up.size(0), [&](std::int64_t first, std::int64_t last) {
    auto call = kernel_call(gate_up, activation, first, last);
    call.grad_y = element_at(grad_y, first * call.width);
    call.grad_gate_up = element_at(grad, first * 2 * call.width);
    if (y != nullptr) call.y = element_at(*y, first * call.width);
    kernels::table().gated_backward(call);
  });
  return grad;
}

struct GatedRow {
  bool (*accepts)(const at::Tensor& gate_up);
  decltype(&plain_gated) forward;
  decltype(&plain_gated_backward) backward;
};

constexpr std::array kGated{
    GatedRow{cpu_accepts, cpu_gated, cpu_gated_backward},
    GatedRow{cuda::accepts_gated, cuda::gated, cuda::gated_backward},
    GatedRow{nullptr, plain_gated, plain_gated_backward},
};

/// Returns the row for an activation, which kernels may not have.
const GatedRow& row_for(const at::Tensor& gate_up, Activation activation, Path path) {
  const bool has_kernels = static_cast<std::size_t>(activation) < Activations::names.size();
  return choose(has_kernels ? path_of(Operation::gated_activation, path) : Path::plain, kGated,
                gate_up);
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct GatedActivationFunction : torch::autograd::Function<GatedActivationFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up,
                            std::int64_t activation, bool fast, const LateResultPtr& late) {
    ctx->save_for_backward({gate_up});
    ctx->saved_data["activation"] = activation;
    ctx->saved_data["fast"] = fast;
    keep(ctx, late);
    return gated_forward(gate_up, Activation{activation}, fast ? Path::fast : Path::plain);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto path = ctx->saved_data["fast"].toBool() ? Path::fast : Path::plain;
    const Activation activation{ctx->saved_data["activation"].toInt()};
    const LateResultPtr late = awaited_result(ctx);
    at::Tensor y;
    const at::Tensor grad = gated_backward(grads[0], ctx->get_saved_variables()[0], activation,
                                           path, late ? &y : nullptr);
    if (late) late->give(y);
    return {grad, {}, {}, {}};
  }
};

}  // namespace

Activation find_activation(std::string_view name) {
  for (std::size_t i = 0; i < AllActivations::names.size(); ++i) {
    if (AllActivations::names[i].name == name) return Activation{static_cast<std::int64_t>(i)};
  }
  fail(ErrorKind::internal, "unknown activation {}", name);
}

at::Tensor gated_forward(const at::Tensor& gate_up, Activation activation, Path path) {
  halves(gate_up);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::activation);
  return row_for(gate_up, activation, path).forward(gate_up, activation);
}

at::Tensor gated_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                          Activation activation, Path path, at::Tensor* y) {
  const auto gate = halves(gate_up).gate;
  if (gate.sizes() != grad_y.sizes() || gate.scalar_type() != grad_y.scalar_type()) {
    fail(ErrorKind::internal,
         "gated_activation: gate {} {} and grad_y {} {} must have the same shape and dtype",
         gate.sizes(), gate.scalar_type(), grad_y.sizes(), grad_y.scalar_type());
  }
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::activation);
  return row_for(gate_up, activation, path).backward(grad_y, gate_up, activation, y);
}

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation, Path path,
                            const LateResultPtr& late) {
  return GatedActivationFunction::apply(gate_up, static_cast<std::int64_t>(activation),
                                        path == Path::fast, late);
}

}  // namespace trireme::ops
