#pragma once
#include <ATen/core/Tensor.h>

#include "ops/activations.hpp"
#include "ops/late_result.hpp"

/// act(x) of an MLP without gate, computed by ATen in fp32 (fp64 for fp64) and rounded once.
namespace trireme::ops {

at::Tensor activation_forward(const at::Tensor& x, Activation activation);
/// Computes the gradient of x.
at::Tensor activation_backward(const at::Tensor& grad_y, const at::Tensor& x,
                               Activation activation);
/// The activation with autograd, which saves x. If `late` is awaited, backward gives it the result.
at::Tensor activated(const at::Tensor& x, Activation activation, const LateResultPtr& late = {});

}  // namespace trireme::ops
