#pragma once
#include <map>
#include <string>

/// Reads the variables that launchers set for a process. They show if MPI is needed, and if MPI
/// sees all processes of the launch. Only MPI reports rank and size of several processes
/// (session.hpp).
namespace trireme::comm {

using LauncherVariables = std::map<std::string, std::string>;

/// Returns the variables of known launchers (mpirun, mpiexec, srun, flux, jsrun, PMIx, PALS) and of
/// the surrounding scheduler job. Call it before MPI_Init: Open MPI then sets variables itself.
LauncherVariables launcher_variables();

/// Returns the rank of this process from the launcher's variables in `environment`, before MPI is
/// available; null without a launcher. Safe before main().
const char* launched_rank(const char* const* environment) noexcept;

/// Returns true if the scheduler's own launcher started this process.
bool is_scheduler_task(const LauncherVariables& variables);

/// The rank and size of this process according to the innermost launcher.
struct LauncherPlace {
  int rank = 0;
  int size = 1;  // rank + 1 if the launcher sets no size
};

LauncherPlace launcher_place(const LauncherVariables& variables);

/// Returns true if the variables show that this process has no peers: no launcher started it, or
/// every launcher around it started one task. MPI must not be used in this case. In a step of one
/// task (`srun --pty bash`) a PMIx server accepts only one MPI_Init, and without a PMI Open MPI
/// ends the process.
bool is_alone(const LauncherVariables& variables);

/// Returns a warning if this process has no peers but its job has several tasks or nodes, which
/// then stay idle; otherwise "". `command` is the text to type after the scheduler's launcher.
std::string idle_tasks_warning(const LauncherVariables& variables, const std::string& command);

/// Returns "exit code 75", the code after a stop request. Under mpirun the text adds mpirun's own
/// code, which the shell sees if the signal was sent to mpirun.
std::string stopped_code_text(const LauncherVariables& variables);

/// Throws Error(usage) with advice if the variables show several processes but MPI reports only one
/// (`mpi_size`). The innermost launcher counts: below `mpirun -n 1`, the tasks of srun are daemons.
void check_launcher(const LauncherVariables& variables, int mpi_size);

}  // namespace trireme::comm
