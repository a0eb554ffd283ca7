#pragma once
#include "parallel/config.hpp"
#include "pipeline/schedule.hpp"

namespace trireme {

/// Which rank of pp holds which stage; without pipeline one stage.
pipeline::Placement stage_placement(const ParallelConfig& config);

/// The passes of an update of `micro_batches`, by parallel.schedule; without pipeline each
/// micro-batch forward, then backward, so that one set of activations lives.
pipeline::Schedule stage_schedule(const ParallelConfig& config, int micro_batches);

}  // namespace trireme
