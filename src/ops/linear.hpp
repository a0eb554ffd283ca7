#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"

namespace trireme::ops {

/// Computes x W^T [N, out] from x [N, in] and W [out, in] for inference: no gradients, sums in fp32
/// (fp64 for fp64).
///
/// The kernels compute each row by the same operations whatever other rows there are, so a sequence
/// gives the same result alone and in a batch. They are made for few rows, for which reading W
/// dominates. Other inputs and the plain path use LibTorch's product without this guarantee.
at::Tensor inference_linear(const at::Tensor& x, const at::Tensor& w, Path path = Path::fast);

/// Like inference_linear, with results in fp32 (fp64 for fp64) that are not rounded to x's dtype.
at::Tensor inference_linear_wide(const at::Tensor& x, const at::Tensor& w, Path path = Path::fast);

}  // namespace trireme::ops
