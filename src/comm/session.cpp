#include "comm/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "core/error.hpp"

namespace trireme {

void check_launcher(const char* step_tasks, bool by_mpirun, int mpi_size) {
  if (step_tasks == nullptr || by_mpirun || mpi_size > 1) return;
  const int tasks = std::atoi(step_tasks);
  if (tasks <= 1) return;
  fail(
      ErrorKind::usage,
      "srun started {} tasks (SLURM_STEP_NUM_TASKS), but MPI sees only this one: each would train alone.\n  Type `srun --mpi=pmix ...` (`srun --mpi=list` shows what this Slurm offers), or start with\n  `mpirun ...` inside the allocation; a program built without MPI runs with `srun -n 1 ...`.",
      tasks);
}

bool started_by_launcher() {
  constexpr std::array<const char*, 4> kLaunchers{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                                  "SLURM_STEP_NUM_TASKS"};
  return std::any_of(kLaunchers.begin(), kLaunchers.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

std::string this_hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

NodeNumber number_nodes(const std::vector<int>& leader_of_rank, int rank) {
  const std::set<int> leaders(leader_of_rank.begin(), leader_of_rank.end());
  const auto at = leaders.find(leader_of_rank[static_cast<std::size_t>(rank)]);
  return {static_cast<int>(std::distance(leaders.begin(), at)), static_cast<int>(leaders.size())};
}

}  // namespace trireme
