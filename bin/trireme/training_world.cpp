#include "bin/trireme/training_world.hpp"

#include "comm/factory.hpp"
#include "comm/nccl/nccl_backend.hpp"

namespace trireme {

std::unique_ptr<comm::Communicator> training_world(const comm::Launch& launch, bool on_gpu,
                                                   const parallel::ParallelConfig& parallel) {
  if (!on_gpu) return launch.world_with(parallel::shared_memory_option(parallel));
  return comm::make_world("nccl", launch.info(),
                          {.launch_order = parallel::has_launch_order(parallel)},
                          comm::nccl_backends());
}

}  // namespace trireme
