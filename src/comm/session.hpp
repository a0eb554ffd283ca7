#pragma once
#include <string>
#include <vector>

namespace trireme::comm {

/// The place of this process in the launch, as reported by MPI, not by scheduler variables.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks on this node
  int local_size = 1;
  int node = 0;  // numbered in the order of each node's lowest rank
  int num_nodes = 1;
  std::string hostname;
};

/// Keeps MPI initialized. There is one per process, created in main() before mpi communicators.
///
/// MPI is initialized with MPI_THREAD_FUNNELED, so only the thread of the constructor may use
/// communicators. The destructor finalizes MPI, except during an exception: peers then wait in a
/// collective, and main() must end the job with abort_job(). Throws Error(usage) if a launcher
/// started several processes that MPI does not see (launchers.hpp), and Error(comm) if MPI fails.
/// In builds without MPI a session has one rank, and several processes are the same error.
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

/// Ends every rank of the job now with this exit code, after flushing the logs. Never returns.
[[noreturn]] void abort_job(int exit_code) noexcept;

/// LaunchInfo's node fields, from the lowest rank on each rank's node. Exposed for its test.
struct NodeNumber {
  int node = 0;
  int num_nodes = 1;
};

NodeNumber number_nodes(const std::vector<int>& leader_of_rank, int rank);

}  // namespace trireme::comm
