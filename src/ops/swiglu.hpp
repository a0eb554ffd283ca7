#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"

/// silu(gate) * up, computed in fp32 (fp64 for fp64) and rounded once.
/// Source: Shazeer, "GLU variants improve transformer", 2020.
namespace trireme::ops {

/// gate_up [.., 2F] (gate first) -> [.., F].
at::Tensor swiglu_forward(const at::Tensor& gate_up, Path path = Path::fast);
/// grad_y [.., F] -> gradient of gate_up [.., 2F].
at::Tensor swiglu_backward(const at::Tensor& grad_y, const at::Tensor& gate_up,
                           Path path = Path::fast);
/// With autograd.
at::Tensor swiglu(const at::Tensor& gate_up, Path path = Path::fast);

struct SwigluGrads {
  at::Tensor gate;
  at::Tensor up;
};

/// The same with gate and up [.., F] apart.
at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up, Path path = Path::fast);
SwigluGrads swiglu_backward(const at::Tensor& grad_y, const at::Tensor& gate, const at::Tensor& up,
                            Path path = Path::fast);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Path path = Path::fast);

}  // namespace trireme::ops
