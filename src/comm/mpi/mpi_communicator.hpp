#pragma once
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme::comm {

/// Creates the communicator over all ranks of the launch, on a duplicate of MPI_COMM_WORLD; for one
/// rank it is a self communicator. Requires a Session and calls from the session's thread. Throws
/// Error(comm), or Error(usage) in builds without MPI.
std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options);

}  // namespace trireme::comm
