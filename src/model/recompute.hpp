#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

/// Selective activation checkpointing of a block.
///
/// Each block saves its input, q k v before norm and rotation, the residual sum, gate and up, and
/// one number per row of each norm. Backward recomputes, bit for bit, the inputs of the linears
/// without a graph, and the attention core once with its graph. Source: Korthikanti et al.,
/// "Reducing activation recomputation in large transformer models", 2022.
namespace trireme {

/// Recomputes a tensor in backward, without a graph.
using Again = std::function<at::Tensor()>;

struct Recomputed {
  at::Tensor y;  // connected to autograd
  Again again;   // recomputes y; must be called before the backward of y, which shares the run
};

/// Returns compute(x) and saves only x. `compute` uses weights through model/weighted.hpp and must
/// give the same bits each time.
Recomputed recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor& x)> compute);

}  // namespace trireme
