#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"

namespace trireme::ops {

/// x [N, in] -> x W^T [N, out], W [out, in], for inference: no gradients, sums in fp32 (fp64 of fp64).
///
/// The kernels form each row by the same operations whatever other rows there are, so a text is the
/// same alone and among others; they are made for few rows, when reading W is what takes time. Where
/// there are none (and on the plain path), LibTorch's product is taken, of which that cannot be said.
at::Tensor inference_linear(const at::Tensor& x, const at::Tensor& w, Path path = Path::fast);

/// The same with results in fp32 (fp64 of fp64), which the kernels do not round to x's type before.
at::Tensor inference_linear_wide(const at::Tensor& x, const at::Tensor& w, Path path = Path::fast);

}  // namespace trireme::ops
