#pragma once
#include <string>
#include <vector>

namespace trireme::comm {

/// Rank and node of this process in the launch, as reported by MPI, not by scheduler variables.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks on this node
  int local_size = 1;
  int node = 0;  // numbered in the order of each node's lowest rank
  int num_nodes = 1;
  std::string hostname;
};

/// Initializes MPI in its constructor and finalizes MPI in its destructor. Create exactly one per
/// process, in main(), before any mpi communicator.
///
/// MPI is initialized with MPI_THREAD_FUNNELED, so only the thread of the constructor may use
/// communicators. During an exception, the destructor does not finalize MPI, because peers may wait
/// in a collective; main() must then end the job with abort_job(). Throws Error(usage) if a
/// launcher started several processes that MPI does not see (launchers.hpp), and Error(comm) if MPI
/// fails. In builds without MPI, a session has one rank, and several processes also give
/// Error(usage).
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

/// The fields of LaunchInfo about nodes. number_nodes() computes them; `leader_of_rank[r]` is the
/// lowest rank on the node of rank r. Exposed for its test.
struct NodeNumber {
  int node = 0;
  int num_nodes = 1;
};

NodeNumber number_nodes(const std::vector<int>& leader_of_rank, int rank);

}  // namespace trireme::comm
