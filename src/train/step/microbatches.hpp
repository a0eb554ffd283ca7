#pragma once
#include "data/batch.hpp"
#include "model/experts/moe_config.hpp"
#include "objective/objective.hpp"
#include "parallel/microbatch.hpp"

namespace trireme {

/// A batch as tensors on `device`. `step` and `training` are what dropout reads.
Microbatch to_microbatch(const Batch& batch, at::Device device, std::int64_t step, bool training);

/// How many terms of a loss a batch has, and the whole update that it is of.
std::int64_t num_terms(const Batch& batch, LossTerm term);
std::int64_t update_terms(const Batch& batch, LossTerm term);

/// How many terms a routers' loss of the whole update has: sequences, or micro-batches.
double update_aux_terms(const Batch& batch, const MoeConfig& moe);

}  // namespace trireme
