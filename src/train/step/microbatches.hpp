#pragma once
#include <span>
#include <vector>

#include "data/batch.hpp"
#include "model/experts/moe_config.hpp"
#include "objective/objective.hpp"
#include "parallel/mesh.hpp"
#include "parallel/microbatch.hpp"

namespace trireme::train {

/// Returns a batch as tensors on `device`. Dropout reads `step` and `training`.
parallel::Microbatch to_microbatch(const data::Batch& batch, at::Device device, std::int64_t step,
                                   bool training);

/// Returns the number of loss terms of a batch, or of the whole update that the batch belongs to.
std::int64_t num_terms(const data::Batch& batch, objective::LossTerm term);
std::int64_t update_terms(const data::Batch& batch, objective::LossTerm term);

/// Returns this rank's shards (context parallelism) of the micro-batches of a training step.
/// `scale` is the factor of the routers' auxiliary loss, which is a mean over the whole update.
std::vector<parallel::Microbatch> make_microbatches(std::span<const data::Batch> batches,
                                                    at::Device device, std::int64_t step,
                                                    const model::MoeConfig& moe, double scale,
                                                    const parallel::Mesh& mesh);

}  // namespace trireme::train
