#pragma once
#include <map>
#include <string>

/// What launchers say in the environment of a process. Rank and size come from MPI alone
/// (session.hpp); these tell whether MPI is to be asked, and whether it saw all that was started.
namespace trireme {

using LauncherVariables = std::map<std::string, std::string>;

/// Those of known launchers (mpirun, mpiexec, srun, flux, jsrun, PMIx, PALS) that are set. To be
/// read before MPI_Init: Open MPI then sets its own.
LauncherVariables launcher_variables();

/// Throws Error(usage), saying what to type, if they tell of several processes and MPI, which gave
/// `mpi_size`, sees one alone. The innermost launcher counts: below `mpirun -n 1` the tasks of srun
/// are its daemons.
void check_launcher(const LauncherVariables& variables, int mpi_size);

}  // namespace trireme
