#pragma once
#include <ATen/core/Tensor.h>

#include "ops/path.hpp"

namespace trireme::ops {

/// Adds the gradients of embedded tokens to the gradient of their table: table[index[i]] +=
/// grads[i]. table [rows, width] is fp32, or fp64 for fp64 gradients; index [n] int64; grads
/// [n, width]. Repeated rows are added in a fixed order on a GPU with CUDA kernels.
void add_embedding_gradient(const at::Tensor& table, const at::Tensor& index,
                            const at::Tensor& grads, Path path = Path::fast);

}  // namespace trireme::ops
