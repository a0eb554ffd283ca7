#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "comm/launchers.hpp"
#include "comm/start_report.hpp"

namespace trireme::comm {

/// The time limit for the start of a rank, from the begin of its program to the first communicator.
struct StartLimit {
  double timeout_s = 300;
  /// Directory that all nodes share, for the marks that show which ranks are missing. It is
  /// created, and removed after the start. "": no marks, so no rank can be named.
  std::filesystem::path marks{};
  /// Called on the watching thread of the reporting rank after its message; must not throw.
  std::function<void(const StartFailure&)> on_failure{};
};

/// Watches the start of this rank including MPI_Init, which never returns if one rank does not
/// arrive. After the time limit, one rank logs the missing ranks and nodes, and this process ends
/// with exit code 5 before MPI or the launcher ends. The destructor ends the watch.
class StartWatch {
 public:
  /// `variables` describe this rank's place.
  StartWatch(const StartLimit& limit, const LauncherVariables& variables);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace trireme::comm
