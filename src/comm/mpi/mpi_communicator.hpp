#pragma once
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme {

/// The communicator over all ranks of the launch, on a duplicate of MPI_COMM_WORLD; one rank gives
/// a self communicator. Needs a Session. Calls come from the session's thread only. Throws
/// Error(comm), or Error(usage) in builds without MPI.
std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options);

}  // namespace trireme
