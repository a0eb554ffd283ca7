#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "parallel/param_spec.hpp"

namespace trireme {

/// Tensor parallelism as a layer sees it: between entering (whole) and leaving (sum) a rank
/// computes with its part of the heads, of the MLP or of the vocabulary; outside, in the residual
/// stream, all ranks hold the same tokens, or with sequence parallelism each its part of them.
///
///                     residual stream   whole           sum
///   tensor            [B, T, D], whole  as it is        sum over ranks
///   and sequence      [B, T / t, D]     all-gather      reduce-scatter
///
/// Backward of each is the other (model/weighted.hpp). Sources: Shoeybi et al., "Megatron-LM", 2019, section 3;
/// Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022.
class TensorGroup {
 public:
  /// Alone: everything is as it is.
  TensorGroup() = default;

  /// `group` must outlive this.
  TensorGroup(Communicator& group, bool sequence_parallel, std::int64_t chunks = 1)
      : group_(&group),
        sequence_parallel_(sequence_parallel && group.size() > 1),
        chunks_(chunks) {}

  [[nodiscard]] int size() const { return group_ == nullptr ? 1 : group_->size(); }

  [[nodiscard]] int rank() const { return group_ == nullptr ? 0 : group_->rank(); }

  [[nodiscard]] bool sequence_parallel() const { return sequence_parallel_; }

  /// In how many pieces tokens enter and leave a linear (token_products.hpp).
  [[nodiscard]] std::int64_t chunks() const { return chunks_; }

  /// Of more than one rank.
  [[nodiscard]] Communicator& group() const { return *group_; }

  /// What enters, without autograd, as all here.
  [[nodiscard]] at::Tensor whole(const at::Tensor& x) const;
  /// What leaves.
  [[nodiscard]] at::Tensor sum(const at::Tensor& y) const;

  /// Of per [B, T, ..] what belongs to this rank's tokens of the residual stream.
  [[nodiscard]] at::Tensor own_tokens(const at::Tensor& per_token) const;

 private:
  Communicator* group_ = nullptr;
  bool sequence_parallel_ = false;
  std::int64_t chunks_ = 1;
};

/// [0, tokens) in `chunks` pieces of about equal length, without empty ones.
std::vector<IndexRange> token_pieces(std::int64_t tokens, std::int64_t chunks);

}  // namespace trireme
