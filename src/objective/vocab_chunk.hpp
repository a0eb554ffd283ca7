#pragma once
#include "objective/vocab_parallel.hpp"

/// The implementations of one chunk of rows of vocab_parallel_cross_entropy. Private.
namespace trireme::objective {

/// A chunk of rows with this rank's logits, which may be overwritten.
struct VocabChunk {
  at::Tensor logits;       // [rows, local classes]
  at::Tensor targets;      // [rows] global classes
  at::Tensor row_weights;  // [rows] in the dtype of losses; undefined: 1
  at::Tensor losses;       // [rows] output: weighted losses, fp32 or fp64
};

/// Computes the losses of a chunk. Returns setup.grad_scale * d loss / d logits in the dtype of the
/// logits; undefined without setup.want_grads. Collective over part.group: a maximum, then two sums
/// per row.
using VocabChunkFunction = at::Tensor(const VocabChunk& chunk, const VocabShard& part,
                                      const LinearCrossEntropySetup& setup);

/// Uses ATen operations, on any device.
VocabChunkFunction plain_vocab_chunk;

/// Uses the kernels of ops/cuda: one that reads the logits, one that overwrites them with the
/// gradient.
VocabChunkFunction cuda_vocab_chunk;

/// Chooses one of them by the operation cross_entropy of ops/operations.hpp.
at::Tensor vocab_chunk(const VocabChunk& chunk, const VocabShard& part,
                       const LinearCrossEntropySetup& setup, ops::Path path);

/// Targets of the rows of one chunk.
struct RowTargets {
  at::Tensor valid;  // true if the row has a loss
  at::Tensor own;    // true if the target class is on this rank
  at::Tensor picks;  // [rows, 1] local class index, 0 if the class is on another rank
};

RowTargets row_targets(const at::Tensor& targets, const VocabShard& part, std::int64_t classes);

/// Subtracts from each row of `scores` the maximum over all ranks. Collective.
void subtract_largest(const at::Tensor& scores, comm::Communicator& group);

}  // namespace trireme::objective
