#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "parallel/param_spec.hpp"

namespace trireme::parallel {

/// The tensor-parallel group that a layer uses. Between whole() and sum(), a rank computes with its
/// part of the heads, the MLP or the vocabulary. In the residual stream, all ranks have the same
/// tokens. With sequence parallelism, each rank has only its part of the tokens.
///
///                      residual stream   whole         sum
///   tensor             [B, T, D], whole  unchanged     sum over ranks
///   with sequence      [B, T / t, D]     all-gather    reduce-scatter
///
/// The backward of whole() is sum(), and the backward of sum() is whole() (model/weighted.hpp).
/// Sources: Shoeybi et al., "Megatron-LM", 2019, section 3; Korthikanti et al., "Reducing
/// activation recomputation in large transformer models", 2022.
class TensorGroup {
 public:
  /// Creates a group of one rank; all functions return their input.
  TensorGroup() = default;

  /// `group` must outlive this object.
  TensorGroup(comm::Communicator& group, bool sequence_parallel, std::int64_t chunks = 1)
      : group_(&group),
        sequence_parallel_(sequence_parallel && group.size() > 1),
        chunks_(chunks) {}

  [[nodiscard]] int size() const { return group_ == nullptr ? 1 : group_->size(); }

  [[nodiscard]] int rank() const { return group_ == nullptr ? 0 : group_->rank(); }

  [[nodiscard]] bool sequence_parallel() const { return sequence_parallel_; }

  /// Returns the number of chunks in which tokens enter and leave a linear (token_products.hpp).
  [[nodiscard]] std::int64_t chunks() const { return chunks_; }

  /// Returns the tp communicator. Call it only if size() > 1.
  [[nodiscard]] comm::Communicator& group() const { return *group_; }

  /// Returns all tokens, for the start of a parallel region. Has no autograd.
  [[nodiscard]] at::Tensor whole(const at::Tensor& x) const;
  /// Returns the sum over ranks, for the end of a parallel region. Has no autograd.
  [[nodiscard]] at::Tensor sum(const at::Tensor& y) const;

  /// Selects the entries of `per_token` [B, T, ..] for this rank's tokens of the residual stream.
  [[nodiscard]] at::Tensor own_tokens(const at::Tensor& per_token) const;

 private:
  comm::Communicator* group_ = nullptr;
  bool sequence_parallel_ = false;
  std::int64_t chunks_ = 1;
};

/// Splits [0, tokens) into at most `chunks` ranges of about equal length. No range is empty.
std::vector<IndexRange> token_chunks(std::int64_t tokens, std::int64_t chunks);

}  // namespace trireme::parallel
