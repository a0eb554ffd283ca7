#pragma once
#include <memory>

#include "comm/communicator.hpp"
#include "comm/mpi/mpi_handles.hpp"
#include "comm/p2p/engine.hpp"

/// The plain path for comparison: MPI's own non-blocking reductions. They progress only inside MPI
/// calls, and the library chooses the order of additions. CommOptions::mpi_reduce selects them.
namespace trireme {

std::unique_ptr<Operation> make_library_all_reduce(MPI_Comm comm, const Reduction& request);
std::unique_ptr<Operation> make_library_reduce_scatter(MPI_Comm comm, const Reduction& request);

}  // namespace trireme
