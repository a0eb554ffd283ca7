#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "ops/attention.hpp"

/// Attention over rows of which every rank of a group holds some places.
///
/// With queries q, keys k and values v of a rank's own places, T / c of each row, every form gives
/// what attention over the whole rows gives at these places, gradients too:
///   ring        blocks of k and v travel: rank r gets that of r - 1, while it computes with the one
///               it holds; results meet in fp32 (merge_attention). In backward k and v travel again,
///               and fp32 gradients with their block, home at last. Blocks that no query here sees
///               cost their transfer alone.
///   all_gather  k and v of all ranks together, gathered again in backward, whose gradients are
///               reduced and scattered
///   ulysses     from T / c places of all heads to T places of H / c heads, and back: 4 all_to_all
///               in forward, 4 in backward. Key heads are sent to every rank whose query heads read
///               them, so with fewer key heads than ranks they are replicated and gradients summed.
/// Source: Liu et al., "Ring Attention", 2023; Jacobs et al., "DeepSpeed Ulysses", 2023.
namespace trireme {

enum class ContextForm { ring, all_gather, ulysses };

inline constexpr std::array<std::string_view, 3> kContextForms{"ring", "all_gather",
                                                               "ulysses"};  // by value

struct ContextSetup {
  ops::AttentionSetup rows;            // of whole rows
  std::vector<ops::RowPlaces> places;  // of every rank of the group: deal_places
};

/// With autograd: q [B, H, T / c, D]; k, v [B, Hk, T / c, D]; returns out [B, H, T / c, D], each in
/// the order of this rank's places. Forward and backward are collective. Throws Error(usage) for
/// ulysses where the ranks do not divide H, Error(comm) where a peer is lost.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ContextSetup& setup, Communicator& group, ContextForm form,
                             ops::Path path = ops::Path::fast);

/// The tokens of some places: x [B, T, ...] to [B, places, ...].
at::Tensor take_places(const at::Tensor& x, const ops::RowPlaces& places);

}  // namespace trireme
