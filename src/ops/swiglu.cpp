#include "ops/swiglu.hpp"

#include <torch/torch.h>

#include "core/error.hpp"

namespace trireme::ops {
namespace {

void check_pair(const at::Tensor& gate, const at::Tensor& up) {
  if (gate.sizes() != up.sizes() || gate.scalar_type() != up.scalar_type()) {
    fail(ErrorKind::internal,
         "swiglu: gate ",
         gate.sizes(),
         " ",
         gate.scalar_type(),
         " and up ",
         up.sizes(),
         " ",
         up.scalar_type(),
         " must be alike");
  }
}

/// The two halves of the last dim.
SwigluGrads halves(const at::Tensor& gate_up) {
  if (gate_up.dim() < 1 || gate_up.size(-1) % 2 != 0) {
    fail(ErrorKind::internal, "swiglu: gate_up ", gate_up.sizes(), " must be [.., 2F]");
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
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& gate,
                            const at::Tensor& up,
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
  const auto grads = swiglu_backward(grad_y, gate, up, path);
  return at::cat({grads.gate, grads.up}, -1);
}

at::Tensor swiglu(const at::Tensor& gate_up, Path path) {
  return SwigluFunction::apply(gate_up, path == Path::fast);
}

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up, Path path) {
  check_pair(gate, up);
  const at::NoGradGuard no_grad;
  (void)path;
  return plain_forward(gate, up);
}

SwigluGrads swiglu_backward(const at::Tensor& grad_y,
                            const at::Tensor& gate,
                            const at::Tensor& up,
                            Path path) {
  check_pair(gate, up);
  check_pair(gate, grad_y);
  const at::NoGradGuard no_grad;
  (void)path;
  return plain_backward(grad_y, gate, up);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Path path) {
  return SwigluPairFunction::apply(gate, up, path == Path::fast);
}

}  // namespace trireme::ops
