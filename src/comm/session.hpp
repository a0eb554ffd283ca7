#pragma once
#include <string>
#include <vector>

namespace trireme {

/// Where this process stands among all of the launch, as MPI tells it (the scheduler's
/// variables are not asked).
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks that share this node's memory
  int local_size = 1;
  int node = 0;  // nodes are numbered in the order of their lowest rank
  int num_nodes = 1;
  std::string hostname;
};

/// Brings MPI up for the life of the object (one per process, before any mpi
/// communicator, in main).
///
/// MPI is asked for MPI_THREAD_FUNNELED: only the thread that made the session may use
/// communicators. The destructor finalizes MPI, except while an exception passes: the peers are
/// then waiting in a collective and main must end the job by abort_job. Throws Error(usage) if a
/// launcher started several processes that MPI does not know of (launchers.hpp); Error(comm) if MPI
/// fails. In builds without MPI a session is one rank, and several are the same error.
class Session {
 public:
  Session(int* argc, char*** argv);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const LaunchInfo& launch() const { return launch_; }

 private:
  LaunchInfo launch_;
  bool owns_mpi_ = false;
};

std::string this_hostname();

/// Ends every rank of the job now with this exit code; logs are flushed first. Never returns.
[[noreturn]] void abort_job(int exit_code) noexcept;

/// LaunchInfo's node fields of one rank from all ranks' lowest node-mate. Exposed for its test.
struct NodeNumber {
  int node = 0;
  int num_nodes = 1;
};

NodeNumber number_nodes(const std::vector<int>& leader_of_rank, int rank);

}  // namespace trireme
