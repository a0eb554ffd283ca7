#pragma once
#include <map>
#include <string>

/// Reads the environment variables that launchers set for a process. They show whether this process
/// needs MPI, and whether MPI sees all processes of the launch. If there are several processes,
/// rank and size come from MPI, not from these variables (session.hpp).
namespace trireme::comm {

using LauncherVariables = std::map<std::string, std::string>;

/// Returns the variables of known launchers (mpirun, mpiexec, srun, flux, jsrun, PMIx, PALS) and of
/// the surrounding scheduler job. Call it before MPI_Init, because Open MPI's MPI_Init sets some of
/// these variables itself.
LauncherVariables launcher_variables();

/// Returns the rank of this process from the launcher's variables in `environment`, before MPI is
/// available; null without a launcher. Safe before main().
const char* launched_rank(const char* const* environment) noexcept;

/// Returns true if the scheduler's own launcher (for example srun) started this process.
bool is_scheduler_task(const LauncherVariables& variables);

/// The rank and size of this process according to the innermost launcher.
struct LauncherRank {
  int rank = 0;
  int size = 1;  // rank + 1 if the launcher sets no size
};

LauncherRank launcher_rank(const LauncherVariables& variables);

/// Returns true if the variables show that this process has no peers: no launcher started it, or
/// every launcher around it started one task. Do not start MPI in this case: in a step with one
/// task (`srun --pty bash`), the PMIx server accepts only one MPI_Init, and if there is no PMI,
/// Open MPI ends the process.
bool is_alone(const LauncherVariables& variables);

/// Returns a warning if this process has no peers but its job has several tasks or nodes, because
/// the rest of the job is then idle; otherwise "". `command` is the command that the user should
/// start with the scheduler's launcher.
std::string idle_tasks_warning(const LauncherVariables& variables, const std::string& command);

/// Returns "exit code 75", the exit code after a stop request. Under mpirun, the text also names
/// the exit code of mpirun, which the shell gets if the signal was sent to mpirun.
std::string stopped_code_text(const LauncherVariables& variables);

/// Throws Error(usage) with advice if the variables show several processes but MPI reports only one
/// (`mpi_size`). Only the innermost launcher counts: if srun starts mpirun, the tasks of srun are
/// daemons of mpirun, not ranks.
void check_launcher(const LauncherVariables& variables, int mpi_size);

}  // namespace trireme::comm
