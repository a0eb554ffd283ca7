#pragma once
#include <functional>
#include <span>

#include "model/transformer.hpp"
#include "parallel/pipeline/stage_p2p.hpp"

namespace trireme::model {

/// Runs the forward passes of micro-batches through the pipeline stages of a model. On the rank
/// with the last stage, `call` receives the number of each micro-batch and its hidden states after
/// the final norm [B, T, D]. Uses the forward actions of `schedule`. Collective over pp.
void forward_stages(const Transformer& model, parallel::StageP2P& links, int pp_rank,
                    pipeline::Schedule schedule,
                    std::span<const parallel::Microbatch> micro_batches,
                    const std::function<void(std::size_t, const at::Tensor&)>& call);

/// Allocates a buffer for the activations of one micro-batch between two stages.
at::Tensor stage_message_buffer(const Transformer& model, const parallel::Microbatch& batch);

}  // namespace trireme::model
