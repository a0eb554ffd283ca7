#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>

#include "ops/activations.hpp"
#include "ops/path.hpp"

/// act(gate) * up for an activation of the table, computed in fp32 (fp64 for fp64), rounded once.
namespace trireme::ops {

/// By its name in model.activation, which the configuration has checked: Error(internal) if unknown.
Activation find_activation(std::string_view name);

/// gate_up [.., 2F] (gate first) -> [.., F].
at::Tensor gated_forward(const at::Tensor& gate_up, Activation activation, Path path = Path::fast);
/// grad_y [.., F] -> gradient of gate_up [.., 2F].
at::Tensor gated_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                          Activation activation, Path path = Path::fast);
/// With autograd.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation,
                            Path path = Path::fast);

}  // namespace trireme::ops
