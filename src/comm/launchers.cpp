#include "comm/launchers.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/number.hpp"
#include "core/process/early_environment.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::comm {
namespace {

struct Launcher {
  const char* rank;  // "" if the launcher sets none
  const char* size;
};

/// The innermost launcher comes first, because mpirun may run inside each launcher that follows in
/// the list. Sources: Open MPI's mpirun(1), MVAPICH2's and MPICH's Hydra, jsrun(1),
/// flux-environment(7), srun(1), HPE's PALS, PMIx 4.
constexpr std::array<Launcher, 6> kInnerLaunchers{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"", "MPI_LOCALNRANKS"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
}};

/// Launchers that come after the launchers of schedulers in the order of the search.
constexpr std::array<Launcher, 2> kOuterLaunchers{{{"PALS_RANKID", ""}, {"PMIX_RANK", ""}}};

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = [] {
    std::vector<Launcher> rows(kInnerLaunchers.begin(), kInnerLaunchers.end());
    for (const scheduler::Scheduler* one : scheduler::schedulers())
      rows.push_back({one->variables().rank, one->variables().step_tasks});
    rows.insert(rows.end(), kOuterLaunchers.begin(), kOuterLaunchers.end());
    return rows;
  }();
  return all;
}

/// The value of this variable shows which PMIx server serves this process.
constexpr const char* kNamespace = "PMIX_NAMESPACE";

std::int64_t number_of(const LauncherVariables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? 0 : parse_integer(found->second).value_or(0);
}

bool is_of_scheduler(const std::string& space) {
  return std::any_of(scheduler::schedulers().begin(), scheduler::schedulers().end(),
                     [&](const scheduler::Scheduler* one) {
                       const std::string_view begins = one->variables().pmix_namespace;
                       return !begins.empty() && space.starts_with(begins);
                     });
}

/// Returns the scheduler of the surrounding job; null outside a job.
const scheduler::Scheduler* job_around(const LauncherVariables& variables) {
  for (const scheduler::Scheduler* one : scheduler::schedulers())
    if (variables.contains(one->variables().job)) return one;
  return nullptr;
}

[[noreturn]] void fail_alone(const char* name, std::int64_t value, const char* meaning) {
  fail(
      ErrorKind::usage,
      "{} = {}: {}, but MPI sees only this process, so each would run alone.\n  Type {}, or start with the `mpirun`\n  of the MPI that this program was built with; a program built without MPI runs as one process (`{} ...`).",
      name, value, meaning, scheduler::scheduler().words().launch_advice,
      scheduler::scheduler().words().launch_one);
}

}  // namespace

LauncherVariables launcher_variables() {
  LauncherVariables set;
  const auto take = [&set](const char* name) {
    const char* value = std::getenv(name);
    if (value != nullptr) set[name] = value;
  };
  for (const Launcher& launcher : launchers()) {
    take(launcher.rank);
    take(launcher.size);
  }
  take(kNamespace);
  for (const scheduler::Scheduler* one : scheduler::schedulers()) {
    const scheduler::SchedulerVariables& names = one->variables();
    for (const char* name : {names.job, names.job_tasks, names.job_nodes}) take(name);
    // The scheduler also sets a rank for the batch script.
    if (!set.contains(names.step_tasks)) set.erase(names.rank);
  }
  return set;
}

const char* launched_rank(const char* const* environment) noexcept {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = value_in(environment, name)) return rank;
  for (const scheduler::Scheduler* one : scheduler::schedulers())
    if (const char* rank = value_in(environment, one->variables().rank)) return rank;
  return nullptr;
}

bool is_scheduler_task(const LauncherVariables& variables) {
  return std::any_of(
      scheduler::schedulers().begin(), scheduler::schedulers().end(),
      [&](const scheduler::Scheduler* one) { return variables.contains(one->variables().rank); });
}

LauncherRank launcher_rank(const LauncherVariables& variables) {
  const auto place = [](std::int64_t rank, std::int64_t size) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max() - 1;
    rank = std::clamp<std::int64_t>(rank, 0, kMost);
    return LauncherRank{static_cast<int>(rank),
                        static_cast<int>(std::clamp(size, rank + 1, kMost + 1))};
  };
  for (const Launcher& launcher : launchers()) {
    if (variables.contains(launcher.size))
      return place(number_of(variables, launcher.rank), number_of(variables, launcher.size));
  }
  for (const Launcher& launcher : launchers()) {
    if (variables.contains(launcher.rank)) return place(number_of(variables, launcher.rank), 1);
  }
  return {};
}

bool is_alone(const LauncherVariables& variables) {
  bool has_launcher = false;
  bool has_size = false;
  for (const Launcher& launcher : launchers()) {
    const bool tells_size = variables.contains(launcher.size);
    has_launcher |= tells_size || variables.contains(launcher.rank);
    if (tells_size && number_of(variables, launcher.size) != 1) return false;
    if (number_of(variables, launcher.rank) > 0) return false;
    // MPI_LOCALNRANKS counts only the ranks of this node.
    has_size |= tells_size && std::string_view(launcher.size) != "MPI_LOCALNRANKS";
  }
  // A PMIx server that does not belong to the scheduler belongs to a launcher inside the step.
  const auto space = variables.find(kNamespace);
  const bool is_other = space != variables.end() && !is_of_scheduler(space->second) &&
                        !variables.contains("OMPI_COMM_WORLD_SIZE");
  return !has_launcher || (has_size && !is_other);
}

std::string idle_tasks_warning(const LauncherVariables& variables, const std::string& command) {
  // If mpirun or the scheduler's launcher started this process, the user has chosen the number of
  // processes.
  const scheduler::Scheduler* around = job_around(variables);
  if (around == nullptr || variables.contains("OMPI_COMM_WORLD_SIZE") ||
      variables.contains("PMI_SIZE") || !is_alone(variables))
    return "";
  const scheduler::SchedulerVariables& names = around->variables();
  const bool in_step = variables.contains(names.step_tasks);
  const std::int64_t tasks = number_of(variables, names.job_tasks);
  const std::int64_t nodes = in_step ? 1 : number_of(variables, names.job_nodes);
  if (tasks <= 1 && nodes <= 1) return "";
  return formatted(
      "this {} job has {} {}, but this command runs as one process: the rest of the job is idle. To use the whole job, start the command with {}: {} {}",
      around->words().name, tasks > 1 ? tasks : nodes, tasks > 1 ? "tasks" : "nodes",
      around->words().launch, around->words().launch, command);
}

std::string stopped_code_text(const LauncherVariables& variables) {
  const bool in_step = std::any_of(scheduler::schedulers().begin(), scheduler::schedulers().end(),
                                   [&](const scheduler::Scheduler* one) {
                                     return variables.contains(one->variables().step_tasks);
                                   });
  const bool by_mpirun = variables.contains("OMPI_COMM_WORLD_SIZE") && !in_step;
  return formatted("exit code {}{}", kExitStopped,
                   by_mpirun ? " (mpirun ends with 1 if the signal was sent to mpirun)" : "");
}

void check_launcher(const LauncherVariables& variables, int mpi_size) {
  if (mpi_size > 1) return;
  for (const Launcher& launcher : launchers()) {
    if (!variables.contains(launcher.size)) continue;
    const std::int64_t size = number_of(variables, launcher.size);
    if (size > 1) fail_alone(launcher.size, size, "several processes were started");
    return;
  }
  for (const Launcher& launcher : launchers()) {
    const std::int64_t rank = number_of(variables, launcher.rank);
    if (rank > 0) fail_alone(launcher.rank, rank, "there are processes with a lower rank");
  }
}

}  // namespace trireme::comm
