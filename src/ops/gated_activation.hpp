#pragma once
#include <ATen/core/Tensor.h>

#include <string_view>

#include "ops/activations.hpp"
#include "ops/late_result.hpp"
#include "ops/path.hpp"

/// act(gate) * up, computed in fp32 (fp64 for fp64) and rounded once.
namespace trireme::ops {

/// Returns the activation with a name of model.activation. Throws Error(internal) if it is unknown.
Activation find_activation(std::string_view name);

/// Computes [.., F] from gate_up [.., 2F], gate first.
at::Tensor gated_forward(const at::Tensor& gate_up, Activation activation, Path path = Path::fast);
/// Computes the gradient of gate_up [.., 2F] from grad_y [.., F]. If `y` is set, it receives the
/// result of gated_forward, from the same pass over memory.
at::Tensor gated_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                          Activation activation, Path path = Path::fast, at::Tensor* y = nullptr);
/// Gated activation with autograd, which saves gate_up. If `late` is awaited, backward gives it the
/// result.
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation,
                            Path path = Path::fast, const LateResultPtr& late = {});

}  // namespace trireme::ops
