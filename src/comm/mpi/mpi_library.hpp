#pragma once
#include <memory>

#include "comm/communicator.hpp"
#include "comm/mpi/mpi_handles.hpp"
#include "comm/p2p/engine.hpp"

/// The plain path: MPI's own non-blocking reductions, which MPI moves only inside MPI calls
/// and whose order of additions the library chooses. Selected by CommOptions::mpi_reduce;
/// kept to measure against.
namespace trireme {

std::unique_ptr<Operation> make_library_all_reduce(MPI_Comm comm, const Reduction& request);
std::unique_ptr<Operation> make_library_reduce_scatter(MPI_Comm comm, const Reduction& request);

}  // namespace trireme
