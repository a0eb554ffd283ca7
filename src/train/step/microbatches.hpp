#pragma once
#include <span>
#include <vector>

#include "data/batch.hpp"
#include "model/experts/moe_config.hpp"
#include "objective/objective.hpp"
#include "parallel/mesh.hpp"
#include "parallel/microbatch.hpp"

namespace trireme {

/// A batch as tensors on `device`. `step` and `training` are what dropout reads.
Microbatch to_microbatch(const Batch& batch, at::Device device, std::int64_t step, bool training);

/// How many terms of a loss a batch has, and the whole update that it is of.
std::int64_t num_terms(const Batch& batch, LossTerm term);
std::int64_t update_terms(const Batch& batch, LossTerm term);

/// Returns this rank's shards (context parallelism) of the micro-batches of a training step. The
/// auxiliary loss of the routers is `scale` times its mean over the whole update.
std::vector<Microbatch> make_microbatches(std::span<const Batch> batches, at::Device device,
                                          std::int64_t step, const MoeConfig& moe, double scale,
                                          const Mesh& mesh);

}  // namespace trireme
