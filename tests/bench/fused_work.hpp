#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/aten_recorder.hpp"
#include "model/config.hpp"

/// The work of the kernels that a GPU uses in place of ATen operations, by their definition, beside
/// the work of the plain operations, which is recorded.
namespace trireme::bench {

/// A model and the rows of one micro-batch.
struct Shape {
  std::string name;
  model::ModelConfig model;
  double rows = 0;
  double length = 0;

  [[nodiscard]] double tokens() const { return rows * length; }
};

/// FlashAttention-2, forward and backward of all layers: one kernel forward; dO * O, the main
/// kernel and the conversion of dQ from fp32 backward; with fewer key heads, two sums over groups.
/// Half of the scores are masked. Source: aten/src/ATen/native/transformers/cuda/flash_attn.
Work flash_attention(const Shape& shape);

using Call = std::function<void()>;

/// An operation with a kernel in ops/cuda.
struct FusedOperation {
  std::string name;
  /// Prepares a call of the plain operation, forward and backward, on some rows as often as one
  /// layer does; may be empty, as plain_rest may.
  std::function<Call(const Shape& shape, std::int64_t rows)> plain_layer;
  /// Prepares the call of the plain operation outside the layers.
  std::function<Call(const Shape& shape, std::int64_t rows)> plain_rest;
  /// Returns the work of the kernels in a gradient-accumulation step.
  Work (*fused)(const Shape& shape);
};

/// Returns the operations with kernels, with launches and bytes as src/ops/cuda defines them.
std::vector<FusedOperation> fused_operations();

/// Returns the work of the kernels for the gradient norm and AdamW. Each unit has two launches for
/// the squares. One launch computes the factor that clips, and AdamW also writes the copy in bf16.
Work fused_update(const Shape& shape);

/// Returns the work of the plain operation in a gradient-accumulation step, which is linear in the rows.
Work plain_work(const Shape& shape, const FusedOperation& operation);

}  // namespace trireme::bench
