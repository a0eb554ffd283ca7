#include "ops/cuda/gated_activation.hpp"

#include <ATen/ATen.h>

namespace trireme::ops::cuda {
namespace {

/// Returns gate_up as rows [rows, 2F], without a copy if its strides allow that.
at::Tensor gated_rows(const at::Tensor& gate_up) {
  const std::int64_t width = gate_up.size(-1);
  const at::Tensor rows = gate_up.reshape({width == 0 ? 0 : gate_up.numel() / width, width});
  return rows.stride(1) == 1 || width <= 1 ? rows : rows.contiguous();
}

std::vector<std::int64_t> half_sizes(const at::Tensor& gate_up) {
  std::vector<std::int64_t> sizes = gate_up.sizes().vec();
  sizes.back() /= 2;
  return sizes;
}

}  // namespace

bool accepts_gated(const at::Tensor& gate_up) {
  return accepts(gate_up, {&kGatedForward, &kGatedBackward});
}

at::Tensor gated(const at::Tensor& gate_up_in, Activation activation) {
  const at::Tensor gate_up = gated_rows(gate_up_in);
  const std::int64_t width = gate_up.size(1) / 2;
  at::Tensor y = at::empty(half_sizes(gate_up_in), gate_up.options());
  launch(kGatedForward, gate_up, {gate_up.size(0), threads_for_row(width, gate_up)},
         {.gate_up = gate_up.data_ptr(),
          .y = y.data_ptr(),
          .stride = gate_up.stride(0),
          .width = width,
          .activation = static_cast<std::int64_t>(activation)});
  return y;
}

at::Tensor gated_backward(const at::Tensor& grad_y_in, const at::Tensor& gate_up_in,
                          Activation activation, at::Tensor* y) {
  const at::Tensor gate_up = gated_rows(gate_up_in);
  const at::Tensor grad_y = grad_y_in.contiguous();
  const std::int64_t width = gate_up.size(1) / 2;
  at::Tensor grad = at::empty(gate_up_in.sizes(), gate_up.options());
  if (y != nullptr) *y = at::empty(half_sizes(gate_up_in), gate_up.options());
  launch(kGatedBackward, gate_up, {gate_up.size(0), threads_for_row(width, gate_up)},
         {.grad_y = grad_y.data_ptr(),
          .gate_up = gate_up.data_ptr(),
          .grad_gate_up = grad.data_ptr(),
          .y = y == nullptr ? nullptr : y->data_ptr(),
          .stride = gate_up.stride(0),
          .width = width,
          .activation = static_cast<std::int64_t>(activation)});
  return grad;
}

}  // namespace trireme::ops::cuda
