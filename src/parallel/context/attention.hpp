#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "ops/attention.hpp"

/// Attention with context parallelism: every rank of a group holds some positions of each row.
///
/// On each rank, q, k and v contain only the rank's own positions: T / c of each row. Every form
/// returns the same outputs and gradients at these positions as attention over whole rows:
///   ring        Chunks of k and v move around a ring of ranks: a rank receives the chunk of the
///               previous rank while it computes with the current chunk. Results are merged in fp32
///               (merge_attention). In backward, k and v move around the ring again together with
///               their fp32 gradients, until each gradient is back on the rank that owns the chunk.
///               If no local query sees a chunk, the chunk costs only its transfer.
///   all_gather  Gathers k and v of all ranks in forward and again in backward. Reduce-scatters
///               their gradients.
///   ulysses     Exchanges T / c positions of all heads for T positions of H / c heads, and later
///               exchanges the output back. This takes 4 all_to_all in forward and 4 in backward. A
///               key head goes to every rank that has query heads that read the key head. If there
///               are fewer key heads than ranks, several ranks receive the same key head, and their
///               gradients for it are summed.
/// Source: Liu et al., "Ring Attention", 2023; Jacobs et al., "DeepSpeed Ulysses", 2023.
namespace trireme::parallel {

enum class ContextAlgorithm { ring, all_gather, ulysses };

inline constexpr std::array<std::string_view, 3> kContextForms{"ring", "all_gather",
                                                               // indexed by ContextAlgorithm
                                                               "ulysses"};

struct ContextSetup {
  ops::AttentionSetup rows;  // setup of whole rows
  std::vector<ops::RowPositions>
      positions;  // positions of every rank of the group (shard_positions)
};

/// Computes attention for this rank's positions; supports autograd. Collective in forward and
/// backward. q [B, H, T / c, D]; k, v [B, Hk, T / c, D]. Returns [B, H, T / c, D], in the order of
/// this rank's positions. Throws Error(usage) for ulysses if H is not divisible by the number of
/// ranks, and Error(comm) if a peer is lost.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ContextSetup& setup, comm::Communicator& group,
                             ContextAlgorithm form, ops::Path path = ops::Path::fast);

/// Selects tokens by position: x [B, T, ...] to [B, positions, ...].
at::Tensor select_positions(const at::Tensor& x, const ops::RowPositions& positions);

}  // namespace trireme::parallel
