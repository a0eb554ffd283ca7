#pragma once
#include <string_view>

#include "parallel/context/attention.hpp"

/// The three forms without autograd. Private to this directory.
namespace trireme::parallel::context {

struct ContextCall {
  ContextSetup setup;
  comm::Communicator* group;
  ContextAlgorithm form;
  ops::Path path;
  std::int64_t num_key_heads;  // key heads of the whole model

  [[nodiscard]] const ops::RowPositions& own_positions() const {
    return setup.positions[static_cast<std::size_t>(group->rank())];
  }

  /// Returns the setup for queries and keys at these positions. With `wide`, results are fp32 (fp64
  /// for fp64 inputs).
  [[nodiscard]] ops::AttentionSetup attention(ops::RowPositions queries, ops::RowPositions keys,
                                              bool wide) const;
};

/// Saved activations for backward. They belong to this rank's positions (ring, all_gather) or to
/// this rank's heads (ulysses).
struct ContextSaved {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  ops::AttentionOutput attended;
};

struct ContextResult {
  at::Tensor out;  // [B, H, T / c, D]
  ContextSaved saved;
};

ContextResult ring_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const ContextCall& call);
ops::AttentionGrads ring_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                  const ContextCall& call);

ContextResult all_gather_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ContextCall& call);
ops::AttentionGrads all_gather_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                        const ContextCall& call);

ContextResult ulysses_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const ContextCall& call);
ops::AttentionGrads ulysses_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                     const ContextCall& call);

/// Returns the positions of all ranks for every row, in rank order.
ops::RowPositions all_positions(const ContextSetup& setup);

}  // namespace trireme::parallel::context
