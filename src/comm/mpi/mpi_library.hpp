#pragma once
#include <string>

namespace trireme::comm {

/// The MPI library of this process. The loader chooses it at the start, so it may differ from that of the build.
struct MpiLibrary {
  std::string version;  // for example "Open MPI v4.1.4"; "": a build without MPI
  std::string file;     // the file that was loaded
};

/// Returns the MPI library of this process. May be called before MPI is initialized.
MpiLibrary mpi_library();

}  // namespace trireme::comm
