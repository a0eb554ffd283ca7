#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "comm/launchers.hpp"
#include "comm/start_report.hpp"

namespace trireme {

/// The limit on the start of a rank: from the begin of its program to the first communicator.
struct StartLimit {
  double timeout_s = 300;
  /// Directory that all nodes share, for the marks by which the ranks know who is missing; made, and
  /// removed when the start is done. "": none, then no rank can be named.
  std::filesystem::path marks{};
  /// Called on the watching thread of the rank that reports, after its message; must not throw.
  std::function<void(const StartFailure&)> on_failure{};
};

/// Watches over the start of this rank, MPI_Init included, which never returns if one rank does not
/// come. When the limit has passed, one rank says in the log which ranks and nodes are missing, and
/// this process ends with exit code 5, before MPI or the launcher do. The destructor ends the watch.
class StartWatch {
 public:
  /// `variables` tell this rank's place.
  StartWatch(const StartLimit& limit, const LauncherVariables& variables);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace trireme
