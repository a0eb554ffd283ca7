#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>

#include "ops/activations.hpp"
#include "ops/path.hpp"

/// act(gate) * up, computed in fp32 (fp64 for fp64) and rounded once.
namespace trireme::ops {

/// Returns the activation with a name of model.activation. Throws Error(internal) if it is unknown.
Activation find_activation(std::string_view name);

/// Computes [.., F] from gate_up [.., 2F], gate first.
at::Tensor gated_forward(const at::Tensor& gate_up, Activation activation, Path path = Path::fast);
/// Computes the gradient of gate_up [.., 2F] from grad_y [.., F].
at::Tensor gated_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                          Activation activation, Path path = Path::fast);
/// Gated activation with autograd.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation,
                            Path path = Path::fast);

}  // namespace trireme::ops
