#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "comm/launchers.hpp"
#include "comm/start_report.hpp"

namespace trireme::comm {

/// The time limit for the start of a rank, from the beginning of main() until the first
/// communicator exists.
struct StartLimit {
  double timeout_s = 300;
  /// A directory that all nodes share, for the marks that show which ranks are missing. It is
  /// created at the start and removed afterwards. If it is "", there are no marks, and the report
  /// cannot name missing ranks.
  std::filesystem::path marks{};
  /// Called on the watching thread of the reporting rank after its message; must not throw.
  std::function<void(const StartFailure&)> on_failure{};
};

/// Watches the start of this rank. This includes MPI_Init, which never returns if one rank does not
/// start. After the time limit, one rank logs the missing ranks and nodes, and this process ends
/// with exit code 5. The destructor ends the watch.
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
