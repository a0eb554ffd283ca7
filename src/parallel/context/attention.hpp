#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "ops/attention.hpp"

/// Attention with context parallelism: every rank of a group holds some positions of each row.
///
/// q, k and v are those of a rank's own positions, T / c of each row. Every form returns the same
/// outputs and gradients at these positions as attention over whole rows:
///   ring        Chunks of k and v travel: a rank receives the chunk of the previous rank while it
///               computes with the current chunk. Results are merged in fp32 (merge_attention).
///               In backward k and v travel again with their fp32 gradients, until these are back
///               on their own rank. A chunk that no local query sees costs only its transfer.
///   all_gather  Gathers k and v of all ranks, again in backward, and reduce-scatters gradients.
///   ulysses     Exchanges T / c positions of all heads for T positions of H / c heads, and back:
///               4 all_to_all in forward, 4 in backward. A key head goes to every rank with query
///               heads that read it. With fewer key heads than ranks it is replicated, and its
///               gradients are summed.
/// Source: Liu et al., "Ring Attention", 2023; Jacobs et al., "DeepSpeed Ulysses", 2023.
namespace trireme::parallel {

enum class ContextForm { ring, all_gather, ulysses };

inline constexpr std::array<std::string_view, 3> kContextForms{"ring", "all_gather",
                                                               // indexed by ContextForm
                                                               "ulysses"};

struct ContextSetup {
  ops::AttentionSetup rows;               // setup of whole rows
  std::vector<ops::RowPositions> places;  // positions of every rank of the group (shard_positions)
};

/// Collective in forward and backward; supports autograd. q [B, H, T / c, D]; k, v [B, Hk, T / c,
/// D]; returns [B, H, T / c, D], in the order of this rank's positions. Throws Error(usage) for
/// ulysses if the ranks do not divide H, and Error(comm) if a peer is lost.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ContextSetup& setup, comm::Communicator& group, ContextForm form,
                             ops::Path path = ops::Path::fast);

/// Selects tokens by position: x [B, T, ...] to [B, positions, ...].
at::Tensor select_positions(const at::Tensor& x, const ops::RowPositions& places);

}  // namespace trireme::parallel
