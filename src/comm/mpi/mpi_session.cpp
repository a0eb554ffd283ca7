#include <array>
#include <cstdlib>
#include <exception>
#include <vector>

#include "comm/descriptors.hpp"
#include "comm/launchers.hpp"
#include "comm/mpi/mpi_handles.hpp"
#include "comm/session.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace trireme::comm {
namespace {

/// File descriptors that must be free. Open MPI 4.1 needs 24 at its start and more for each kind of
/// network. Trireme then opens its own files.
constexpr int kDescriptors = 48;

LaunchInfo read_launch() {
  LaunchInfo info;
  info.hostname = this_hostname();
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &info.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &info.size), "MPI_Comm_size");
  MPI_Comm raw = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, info.rank, MPI_INFO_NULL, &raw),
      "MPI_Comm_split_type");
  const MpiComm node(raw);
  check_mpi(MPI_Comm_rank(node.get(), &info.local_rank), "MPI_Comm_rank of the node");
  check_mpi(MPI_Comm_size(node.get(), &info.local_size), "MPI_Comm_size of the node");
  int leader = info.rank;
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node.get()), "MPI_Bcast of the node's first rank");
  std::vector<int> leaders(static_cast<std::size_t>(info.size));
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "MPI_Allgather of node leaders");
  const NodeNumber number = number_nodes(leaders, info.rank);
  info.node = number.node;
  info.num_nodes = number.num_nodes;
  return info;
}

/// Logs a line if several nodes have the same hostname, because hostnames in messages are then
/// ambiguous. This happens in containers and in local test clusters.
void compare_hostnames(const LaunchInfo& info) {
  std::array<char, 64> mine{};
  info.hostname.copy(mine.data(), mine.size() - 1);
  std::vector<char> all(mine.size() * static_cast<std::size_t>(info.size));
  const int width = static_cast<int>(mine.size());
  check_mpi(
      MPI_Allgather(mine.data(), width, MPI_CHAR, all.data(), width, MPI_CHAR, MPI_COMM_WORLD),
      "MPI_Allgather of hostnames");
  int same = 0;
  for (int r = 0; r < info.size; ++r)
    same += info.hostname.substr(0, mine.size() - 1) == &all[static_cast<std::size_t>(r * width)]
                ? 1
                : 0;
  if (same == info.local_size || info.rank != 0) return;
  log::info(formatted("MPI sees {} ranks on this node, but {} ranks have its hostname '{}'",
                      info.local_size, same, info.hostname));
}

}  // namespace

Session::Session(int* argc, char*** argv) {
  const LauncherVariables variables = launcher_variables();
#ifdef OPEN_MPI
  // If srun starts this process without a PMI, Open MPI ends the process inside MPI_Init and prints
  // only long advice about how to build Open MPI.
  bool has_pmi = false;
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "PMI_FD"})
    has_pmi |= std::getenv(name) != nullptr;
  if (!has_pmi) {
    check_launcher(variables, 1);
    // Without peers, Open MPI 4.1 starts a daemon for MPI_Comm_spawn, which fails without ssh or a
    // network interface. Trireme never spawns.
    ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  }
#endif
  require_descriptors(kDescriptors);
  int provided = 0;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  owns_mpi_ = true;
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (provided < MPI_THREAD_FUNNELED)
    fail(
        ErrorKind::usage,
        "this MPI provides thread level {}; MPI_THREAD_FUNNELED is required, because data loader and heartbeat are threads",
        provided);
  launch_ = read_launch();
  compare_hostnames(launch_);
  try {
    check_launcher(variables, launch_.size);
  } catch (...) {
    MPI_Finalize();  // each process is a separate MPI job, so no peer waits in MPI_Finalize
    throw;
  }
}

Session::~Session() {
  if (!owns_mpi_ || mpi_finalized() || std::uncaught_exceptions() > 0) return;
  MPI_Finalize();
}

void abort_job(int exit_code) noexcept {
  log::flush();
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0 && !mpi_finalized()) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) {
      MPI_Finalize();
    } else {
      MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
  }
  std::_Exit(exit_code);
}

}  // namespace trireme::comm
