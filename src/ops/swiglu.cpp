#include "ops/swiglu.hpp"

#include <torch/torch.h>

#include "core/error.hpp"
#include "ops/fast.hpp"

namespace trireme::ops {
namespace {

void check_pair(const at::Tensor& gate, const at::Tensor& up) {
  if (gate.sizes() != up.sizes() || gate.scalar_type() != up.scalar_type()) {
    fail(ErrorKind::internal, "swiglu: gate {} {} and up {} {} must be alike", gate.sizes(),
         gate.scalar_type(), up.sizes(), up.scalar_type());
  }
}

/// The two halves of the last dim.
SwigluGrads halves(const at::Tensor& gate_up) {
  if (gate_up.dim() < 1 || gate_up.size(-1) % 2 != 0) {
    fail(ErrorKind::internal, "swiglu: gate_up {} must be [.., 2F]", gate_up.sizes());
  }
  const auto width = gate_up.size(-1) / 2;
  return {gate_up.narrow(-1, 0, width), gate_up.narrow(-1, width, width)};
}

at::Tensor plain_forward(const at::Tensor& gate, const at::Tensor& up) {
  const auto type = accumulate_type(gate);
  return (at::silu(gate.to(type)) * up.to(type)).to(gate.scalar_type());
}

SwigluGrads plain_backward(const at::Tensor& grad_y, const at::Tensor& gate, const at::Tensor& up) {
  const auto type = accumulate_type(gate);
  const auto g = gate.to(type);
  const auto sigmoid = at::sigmoid(g);
  const auto incoming = grad_y.to(type);
  // d silu(g) / dg = s + g s (1 - s)
  const auto slope = sigmoid * (g * (1 - sigmoid) + 1);
  return {(incoming * up.to(type) * slope).to(gate.scalar_type()),
          (incoming * g * sigmoid).to(gate.scalar_type())};
}

/// x as rows of its last dim, without a copy where its strides allow.
at::Tensor as_rows(const at::Tensor& x) {
  const auto width = x.size(-1);
  const auto rows = x.reshape({width == 0 ? 0 : x.numel() / width, width});
  return width <= 1 || rows.stride(1) == 1 ? rows : rows.contiguous();
}

at::Tensor fast_forward(const at::Tensor& gate_in, const at::Tensor& up_in) {
  const auto gate = as_rows(gate_in);
  const auto up = as_rows(up_in);
  const auto width = gate.size(1);
  auto y = at::empty(gate_in.sizes(), gate_in.options());
  for_row_blocks(gate.size(0), [&](std::int64_t first, std::int64_t last) {
    kernels::Swiglu call{};
    call.element = element_of(gate);
    call.gate = element_at(gate, first * gate.stride(0));
    call.up = element_at(up, first * up.stride(0));
    call.y = element_at(y, first * width);
    call.gate_stride = gate.stride(0);
    call.up_stride = up.stride(0);
    call.rows = last - first;
    call.width = width;
    kernels::table().swiglu_forward(call);
  });
  return y;
}

/// Writes into `grads`, whose tensors are rows of any stride.
void fast_backward(const at::Tensor& grad_y_in, const at::Tensor& gate_in, const at::Tensor& up_in,
                   const SwigluGrads& grads) {
  const auto gate = as_rows(gate_in);
  const auto up = as_rows(up_in);
  const auto grad_y = grad_y_in.contiguous();
  const auto width = gate.size(1);
  for_row_blocks(gate.size(0), [&](std::int64_t first, std::int64_t last) {
    kernels::Swiglu call{};
    call.element = element_of(gate);
    call.gate = element_at(gate, first * gate.stride(0));
    call.up = element_at(up, first * up.stride(0));
    call.grad_y = element_at(grad_y, first * width);
    call.grad_gate = element_at(grads.gate, first * grads.gate.stride(0));
    call.grad_up = element_at(grads.up, first * grads.up.stride(0));
    call.gate_stride = gate.stride(0);
    call.up_stride = up.stride(0);
    call.grad_gate_stride = grads.gate.stride(0);
    call.grad_up_stride = grads.up.stride(0);
    call.rows = last - first;
    call.width = width;
    kernels::table().swiglu_backward(call);
  });
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up, bool fast) {
    ctx->save_for_backward({gate_up});
    ctx->saved_data["fast"] = fast;
    return swiglu_forward(gate_up, fast ? Path::fast : Path::plain);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto path = ctx->saved_data["fast"].toBool() ? Path::fast : Path::plain;
    return {swiglu_backward(grads[0], ctx->get_saved_variables()[0], path), {}};
  }
};

struct SwigluPairFunction : torch::autograd::Function<SwigluPairFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            bool fast) {
    ctx->save_for_backward({gate, up});
    ctx->saved_data["fast"] = fast;
    return swiglu_forward(gate, up, fast ? Path::fast : Path::plain);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto path = ctx->saved_data["fast"].toBool() ? Path::fast : Path::plain;
    const auto saved = ctx->get_saved_variables();
    auto out = swiglu_backward(grads[0], saved[0], saved[1], path);
    return {out.gate, out.up, {}};
  }
};

}  // namespace

at::Tensor swiglu_forward(const at::Tensor& gate_up, Path path) {
  const auto [gate, up] = halves(gate_up);
  return swiglu_forward(gate, up, path);
}

at::Tensor swiglu_backward(const at::Tensor& grad_y, const at::Tensor& gate_up, Path path) {
  const auto [gate, up] = halves(gate_up);
  if (takes_fast_path(path, gate_up)) {
    check_pair(gate, grad_y);
    auto grad = at::empty(gate_up.sizes(), gate_up.options());
    const auto [grad_gate, grad_up] = halves(grad);
    fast_backward(grad_y, gate, up, {as_rows(grad_gate), as_rows(grad_up)});
    return grad;
  }
  const auto grads = swiglu_backward(grad_y, gate, up, path);
  return at::cat({grads.gate, grads.up}, -1);
}

at::Tensor swiglu(const at::Tensor& gate_up, Path path) {
  return SwigluFunction::apply(gate_up, path == Path::fast);
}

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up, Path path) {
  check_pair(gate, up);
  const at::NoGradGuard no_grad;
  return takes_fast_path(path, gate) ? fast_forward(gate, up) : plain_forward(gate, up);
}

SwigluGrads swiglu_backward(const at::Tensor& grad_y, const at::Tensor& gate, const at::Tensor& up,
                            Path path) {
  check_pair(gate, up);
  check_pair(gate, grad_y);
  const at::NoGradGuard no_grad;
  if (!takes_fast_path(path, gate)) return plain_backward(grad_y, gate, up);
  SwigluGrads grads{at::empty(gate.sizes(), gate.options()), at::empty(up.sizes(), up.options())};
  fast_backward(grad_y, gate, up, {as_rows(grads.gate), as_rows(grads.up)});
  return grads;
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Path path) {
  return SwigluPairFunction::apply(gate, up, path == Path::fast);
}

}  // namespace trireme::ops
