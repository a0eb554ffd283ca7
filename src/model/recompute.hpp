#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

/// Selective recompute: what a block makes again in backward instead of keeping it.
///
/// Kept for each block are its input, q k v before norm and rotation, the residual sum, gate and up,
/// and a number a row of each norm. Made again, bit for bit: the inputs of the linears, each without
/// a graph, and the attention core, once, with its graph.
/// Source: Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022.
namespace trireme {

/// Makes a tensor again, in backward, without a graph.
using Again = std::function<at::Tensor()>;

struct Recomputed {
  at::Tensor y;  // with autograd
  Again again;   // y, for who reads it; before the backward of y, which shares the one run
};

/// compute(x) of which x alone is kept. `compute` uses weights through model/weighted.hpp and must
/// give the same bits each time.
Recomputed recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor& x)> compute);

}  // namespace trireme
