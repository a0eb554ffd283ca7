#pragma once
#include <memory>

#include "comm/launch.hpp"
#include "parallel/config.hpp"

namespace trireme {

/// Returns the communicator of all ranks of a training: of NCCL on GPUs, otherwise of MPI with the
/// shared memory that the layout asks for. Returns null if it is the world of `launch`. Collective.
std::unique_ptr<comm::Communicator> training_world(const comm::Launch& launch, bool on_gpu,
                                                   const parallel::ParallelConfig& parallel);

}  // namespace trireme
