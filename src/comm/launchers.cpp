#include "comm/launchers.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

struct Launcher {
  const char* rank;  // "": tells none
  const char* size;
};

/// Innermost first: an mpirun may run inside of all that follow it. Sources: Open MPI's mpirun(1),
/// MVAPICH2's and MPICH's Hydra, jsrun(1), flux-environment(7), srun(1), HPE's PALS, PMIx 4.
constexpr std::array<Launcher, 9> kLaunchers{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"", "MPI_LOCALNRANKS"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},  // SLURM_NTASKS is the job's, also where no srun is
    {"PALS_RANKID", ""},
    {"PMIX_RANK", ""},
}};

/// Facts beside the launchers: the namespace says who serves PMIx, the others describe the job.
constexpr std::array<const char*, 4> kAround{"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_NTASKS",
                                             "SLURM_JOB_NUM_NODES"};

std::int64_t number_of(const LauncherVariables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? 0 : parse_integer(found->second).value_or(0);
}

[[noreturn]] void fail_alone(const char* name, std::int64_t value, const char* meaning) {
  fail(
      ErrorKind::usage,
      "{} = {}: {}, but MPI sees this one alone, and each would work by itself.\n  Type `srun --mpi=pmix ...` under Slurm (`srun --mpi=list` shows what it offers), or start with the `mpirun`\n  of the MPI that this program was built with; a program built without MPI runs as one process (`srun -n 1 ...`).",
      name, value, meaning);
}

}  // namespace

LauncherVariables launcher_variables() {
  LauncherVariables set;
  const auto take = [&set](const char* name) {
    const char* value = std::getenv(name);
    if (value != nullptr) set[name] = value;
  };
  for (const Launcher& launcher : kLaunchers) {
    take(launcher.rank);
    take(launcher.size);
  }
  for (const char* name : kAround) take(name);
  // A batch script has a SLURM_PROCID, too.
  if (!set.contains("SLURM_STEP_NUM_TASKS")) set.erase("SLURM_PROCID");
  return set;
}

LauncherPlace launcher_place(const LauncherVariables& variables) {
  const auto place = [](std::int64_t rank, std::int64_t size) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max() - 1;
    rank = std::clamp<std::int64_t>(rank, 0, kMost);
    return LauncherPlace{static_cast<int>(rank),
                         static_cast<int>(std::clamp(size, rank + 1, kMost + 1))};
  };
  for (const Launcher& launcher : kLaunchers) {
    if (variables.contains(launcher.size))
      return place(number_of(variables, launcher.rank), number_of(variables, launcher.size));
  }
  for (const Launcher& launcher : kLaunchers) {
    if (variables.contains(launcher.rank)) return place(number_of(variables, launcher.rank), 1);
  }
  return {};
}

bool is_alone(const LauncherVariables& variables) {
  bool has_launcher = false;
  bool has_size = false;
  for (const Launcher& launcher : kLaunchers) {
    const bool tells_size = variables.contains(launcher.size);
    has_launcher |= tells_size || variables.contains(launcher.rank);
    if (tells_size && number_of(variables, launcher.size) != 1) return false;
    if (number_of(variables, launcher.rank) > 0) return false;
    // MPI_LOCALNRANKS counts the ranks of this node only.
    has_size |= tells_size && std::string_view(launcher.size) != "MPI_LOCALNRANKS";
  }
  // A PMIx server that is not Slurm's belongs to a launcher inside of the step.
  const auto space = variables.find("PMIX_NAMESPACE");
  const bool is_other = space != variables.end() && !space->second.starts_with("slurm.") &&
                        !variables.contains("OMPI_COMM_WORLD_SIZE");
  return !has_launcher || (has_size && !is_other);
}

std::string idle_tasks_warning(const LauncherVariables& variables, const std::string& command) {
  // mpirun says how many processes the user wants, and so does srun: it sets SLURM_NTASKS.
  if (!variables.contains("SLURM_JOB_ID") || variables.contains("OMPI_COMM_WORLD_SIZE") ||
      variables.contains("PMI_SIZE") || !is_alone(variables))
    return "";
  const bool in_step = variables.contains("SLURM_STEP_NUM_TASKS");
  const std::int64_t tasks = number_of(variables, "SLURM_NTASKS");
  const std::int64_t nodes = in_step ? 1 : number_of(variables, "SLURM_JOB_NUM_NODES");
  if (tasks <= 1 && nodes <= 1) return "";
  return formatted(
      "this Slurm job has {} {}, and this command runs as one process alone: the rest of the job is idle. To use the whole job, start the command with srun: srun {}",
      tasks > 1 ? tasks : nodes, tasks > 1 ? "tasks" : "nodes", command);
}

std::string stopped_code_text(const LauncherVariables& variables) {
  const bool by_mpirun =
      variables.contains("OMPI_COMM_WORLD_SIZE") && !variables.contains("SLURM_STEP_NUM_TASKS");
  return formatted("exit code {}{}", kExitStopped,
                   by_mpirun ? " (mpirun ends with 1 if the signal was sent to mpirun)" : "");
}

void check_launcher(const LauncherVariables& variables, int mpi_size) {
  if (mpi_size > 1) return;
  for (const Launcher& launcher : kLaunchers) {
    if (!variables.contains(launcher.size)) continue;
    const std::int64_t size = number_of(variables, launcher.size);
    if (size > 1) fail_alone(launcher.size, size, "so many processes were started");
    return;
  }
  for (const Launcher& launcher : kLaunchers) {
    const std::int64_t rank = number_of(variables, launcher.rank);
    if (rank > 0) fail_alone(launcher.rank, rank, "there are processes before this one");
  }
}

}  // namespace trireme
