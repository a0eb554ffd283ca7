#pragma once
#include <array>
#include <span>
#include <string_view>

/// The operations of a training step that have a fast and a plain path, each of which can be made
/// plain alone: to measure its gain (`bench ladder`) or to get around a wrong kernel
/// (`train.plain_ops`). No LibTorch.
namespace trireme::ops {

enum class Path;

enum class Operation {
  attention,
  cross_entropy,
  dropout,
  embedding,
  fp8,
  gated_activation,
  grad_norm,
  matmul,
  optimizer,
  rms_norm,
  rope,
};

/// The names in the enum's order, as train.plain_ops lists them. `embedding` is the gradient of the
/// table, `fp8` computes the codes and scales of train.fp8, `matmul` stands for the matrix products
/// of `product.hpp`, and `rope` includes the norm of queries and keys. On a CPU, `embedding` and
/// `fp8` have one path. On a GPU, and on CPUs where LibTorch is faster, `matmul` has one path.
inline constexpr std::array<std::string_view, 11> kOperations{
    "attention", "cross_entropy", "dropout",   "embedding", "fp8", "gated_activation",
    "grad_norm", "matmul",        "optimizer", "rms_norm",  "rope"};

/// Makes exactly these operations plain in the whole process, whatever path their callers pass. Do
/// not call it between the forward and the backward pass of a step.
void compute_plainly(std::span<const Operation> operations);

/// Returns the path that `operation` takes if its caller passes `path`.
Path path_of(Operation operation, Path path);

}  // namespace trireme::ops
