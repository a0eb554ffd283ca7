#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/experts/moe_config.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "parallel/microbatch.hpp"

/// Routing statistics and the load-balancing loss.
namespace trireme::model {

/// Routing statistics of this rank's layers for one update. Backward adds to them once per
/// micro-batch, even if layers are recomputed. Only the first rank of tp counts.
struct RouterStatistics {
  at::Tensor aux_loss;  // [] fp64, with Microbatch::aux_weight, for the tokens of this rank
  at::Tensor counts;    // [model layers, E] fp64, whole numbers: assignments of this rank's tokens

  /// Resets all values to 0. Requires `moe.on()`.
  void reset(const MoeConfig& moe, std::int64_t num_layers, at::Device device);
};

/// Returns the number of sequences (or micro-batches) that the auxiliary loss sums over.
std::int64_t aux_loss_terms(const MoeConfig& moe, const parallel::Microbatch& batch);

/// Counts the tokens of each expert [E] fp64, without padding, from experts [N, k].
at::Tensor assignments(const parallel::Microbatch& batch, const at::Tensor& experts,
                       std::int64_t num_experts);

/// Computes the auxiliary loss of one layer: the sum over sequences (or the one micro-batch) s of
///   coef * aux_weight * sum_e f_e P_e,  f_e = E / (k T) * assignments of e,  P_e = mean score of e
/// over the T tokens of s without padding. With micro_batch the factor 1 / k is omitted, as in
/// MiniMind V3. Sigmoid scores are first divided by their sum. f does not depend on the weights.
/// scores [N, E], experts [N, k], N = B T.
/// Returns the gradient with respect to the scores [N, E]; undefined without an auxiliary loss.
/// Adds to the statistics. Collective over the ranks of cp if there is a loss.
/// Sources: Fedus et al., "Switch Transformers", 2022; DeepSeek-AI, "DeepSeek-V3", 2024, 2.1.2.
at::Tensor balance_router(const MoeConfig& moe, const parallel::Microbatch& batch,
                          const at::Tensor& scores, const at::Tensor& experts,
                          const parallel::ContextGroup& context, std::int64_t layer,
                          RouterStatistics& statistics);

}  // namespace trireme::model
