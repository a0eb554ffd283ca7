#pragma once
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme::comm {

/// Creates the communicator over all ranks of the launch, on a duplicate of MPI_COMM_WORLD. For one
/// rank, returns a self communicator. Requires a Session; only the thread of the Session may use
/// the communicator. Throws Error(comm), or Error(usage) in builds without MPI.
std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options);

}  // namespace trireme::comm
