#include "comm/launchers.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>

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
    {"", "SLURM_STEP_NUM_TASKS"},  // SLURM_NTASKS is the job's, also where no srun is
    {"PALS_RANKID", ""},
    {"PMIX_RANK", ""},
}};

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
  for (const Launcher& launcher : kLaunchers) {
    for (const char* name : {launcher.rank, launcher.size}) {
      const char* value = std::getenv(name);
      if (value != nullptr) set[name] = value;
    }
  }
  return set;
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
