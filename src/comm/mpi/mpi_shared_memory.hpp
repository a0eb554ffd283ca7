#pragma once
#include <memory>

#include "comm/mpi/mpi_handles.hpp"
#include "comm/options.hpp"
#include "comm/shared/shared_rings.hpp"

namespace trireme::comm {

/// Creates the shared memory of a group. Returns null on all ranks if CommOptions forbid it, if the
/// group has several nodes, or if one rank cannot map the memory. In the last case one rank logs
/// the reason, once in each process; with SharedMemory::always it throws Error(resource) on all
/// ranks. Collective.
std::shared_ptr<SharedRings> share_memory(MPI_Comm group, const CommOptions& options);

}  // namespace trireme::comm
