#pragma once
#include <functional>
#include <span>

#include "model/transformer.hpp"
#include "parallel/pipeline/stage_links.hpp"

namespace trireme {

/// Forward passes alone of micro-batches through the stages of a model: `call` gets each one's number and
/// hidden states after the last norm [B, T, D], on the rank that has the last stage. Of `schedule` its
/// forward passes count. Collective over the ranks of pp.
void forward_stages(const Transformer& model, StageLinks& links, int pp_rank,
                    pipeline::Schedule schedule, std::span<const Microbatch> micro_batches,
                    const std::function<void(std::size_t, const at::Tensor&)>& call);

/// Memory for what goes between two stages, of a micro-batch.
at::Tensor space_between_stages(const Transformer& model, const Microbatch& batch);

}  // namespace trireme
