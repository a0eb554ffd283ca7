#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/experts/moe_config.hpp"
#include "parallel/context/deal_tokens.hpp"
#include "parallel/microbatch.hpp"

/// How evenly routers use their experts, and the loss that makes them.
namespace trireme {

/// What the routers of this rank's layers leave of an update. Added in backward: once a micro-batch,
/// whatever is recomputed. Of tp, whose ranks route alike, the first rank has it alone.
struct RouterTally {
  at::Tensor aux_loss;  // [] fp64, with Microbatch::aux_weight: of this rank's tokens
  at::Tensor counts;    // [layers of the model, E] fp64, whole numbers: its tokens' assignments

  /// Zeros; `moe.on()`.
  void reset(const MoeConfig& moe, std::int64_t num_layers, at::Device device);
};

/// How many sequences, or micro-batches, an auxiliary loss of this micro-batch is the sum of.
std::int64_t aux_loss_terms(const MoeConfig& moe, const Microbatch& batch);

/// experts [N, k] -> tokens of each expert [E] fp64, padding left out.
at::Tensor assignments(const Microbatch& batch, const at::Tensor& experts,
                       std::int64_t num_experts);

/// Auxiliary loss of one layer: a sum over sequences (or over the one micro-batch) s of
///   coef * aux_weight * sum_e f_e P_e,   f_e = E / (k T) * assignments of e,   P_e = mean score of e
/// over the T tokens of s that are no padding (for micro_batch without 1 / k, as MiniMind V3
/// has it); sigmoid scores are divided by their sum before. f is no function of
/// the weights. scores [N, E], experts [N, k], N = B T.
/// Returns its gradient with respect to the scores [N, E]; undefined without such a loss. Adds to
/// the tally. Collective over the ranks of cp where there is a loss.
/// Sources: Fedus et al., "Switch Transformers", 2022; DeepSeek-AI, "DeepSeek-V3", 2024, section 2.1.2.
at::Tensor balance_router(const MoeConfig& moe, const Microbatch& batch, const at::Tensor& scores,
                          const at::Tensor& experts, const ContextGroup& context,
                          std::int64_t layer, RouterTally& tally);

}  // namespace trireme
