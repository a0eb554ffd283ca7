#pragma once
#include <map>
#include <string>

/// Reads the variables that launchers set for a process. MPI alone tells rank and size of a start
/// of several processes (session.hpp). These variables tell whether MPI has to be asked, and whether
/// MPI saw all processes that were started.
namespace trireme {

using LauncherVariables = std::map<std::string, std::string>;

/// Returns the variables of known launchers (mpirun, mpiexec, srun, flux, jsrun, PMIx, PALS) that
/// are set, and those of the scheduler's job around them. Read them before MPI_Init: Open MPI then sets
/// variables of its own.
LauncherVariables launcher_variables();

/// Returns the rank of this process in the variables `environment` of a launcher, before MPI can tell;
/// null without a launcher. Safe before main.
const char* launched_rank(const char* const* environment) noexcept;

/// Returns true if the scheduler's own launcher started this process.
bool is_scheduler_task(const LauncherVariables& variables);

/// A place among the processes of a start, as the innermost launcher tells it.
struct LauncherPlace {
  int rank = 0;
  int size = 1;  // rank + 1 if the launcher tells no size
};

LauncherPlace launcher_place(const LauncherVariables& variables);

/// Returns true if the variables show that this process has no peers: no launcher started it, or
/// every launcher around it started one task. MPI must then not be asked: in a step of one task
/// (`srun --pty bash`) a PMIx server takes one MPI_Init only, and without a PMI Open MPI ends the
/// process.
bool is_alone(const LauncherVariables& variables);

/// Returns a warning if this process is alone in a scheduler's job of several tasks or nodes, which then
/// stay idle; "" if it is not. `command`: what to type behind its launcher.
std::string idle_tasks_warning(const LauncherVariables& variables, const std::string& command);

/// Returns "exit code 75", the code of a process that stops on request. Under mpirun the text adds
/// the code of mpirun itself, which the shell sees if mpirun was sent the signal.
std::string stopped_code_text(const LauncherVariables& variables);

/// Throws Error(usage), saying what to type, if the variables tell of several processes and MPI,
/// which gave `mpi_size`, sees one alone. The innermost launcher counts: below `mpirun -n 1` the
/// tasks of srun are its daemons.
void check_launcher(const LauncherVariables& variables, int mpi_size);

}  // namespace trireme
