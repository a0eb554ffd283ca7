#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "comm/launchers.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"
#include "comm/start_watch.hpp"

/// Starts and ends one rank, from main() to its exit code.
namespace trireme::comm {

/// A timeout for communicators with ranks that may meet after hours of separate work.
inline constexpr double kNoTimeout_s = 1e9;

/// Runs `body` on one rank. Converts its result or exception to an exit code and at most one
/// message (run_main.hpp). After AgreedError or PeerFailed (agree.hpp), all ranks know about the
/// error, so each rank exits by itself. After any other error, peers may wait in a collective; then
/// calls `abandon`, which must end them.
int run_rank(const char* program, const std::function<int()>& body,
             const std::function<void(int code)>& abandon);

/// One rank of a launch, from main() to its exit code. Each process creates exactly one in main().
/// From the constructor on, log lines contain the rank.
class Launch {
 public:
  /// Reads the launcher's environment variables; does not start MPI. `options` apply to world().
  Launch(const char* program, int* argc, char*** argv, const CommOptions& options);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// Returns rank, size and node of this process. Before start() they come from the launcher's
  /// variables, afterwards from MPI.
  [[nodiscard]] const LaunchInfo& info() const noexcept { return info_; }

  /// Returns the communicator of all ranks. Call it only after start() or start_alone().
  [[nodiscard]] Communicator& world() const noexcept { return *world_; }

  /// Returns another communicator of all ranks, which uses shared memory as given; null if world()
  /// does. Throws like make_world(). Collective.
  [[nodiscard]] std::unique_ptr<Communicator> world_with(SharedMemory shared_memory) const;

  /// Returns the launcher's variables from before MPI started.
  [[nodiscard]] const LauncherVariables& variables() const noexcept { return variables_; }

  /// Starts MPI and creates world() within `limit`. Does not start MPI if this process has no peers
  /// (launchers.hpp). Call either start() or start_alone(), once. Throws like Session. Collective.
  void start(const StartLimit& limit);

  /// Creates world() for this process alone, without MPI, for a command that needs no ranks.
  void start_alone();

  /// Sets a function for an error that only this rank has. It runs before the other ranks are
  /// aborted.
  void before_abort(std::function<void(int code)> action) { before_abort_ = std::move(action); }

  /// Runs run_rank(). If only this rank has an error, aborts the whole job. Call it once.
  int run(const std::function<int()>& body) const;

 private:
  void init_log() const;

  const char* program_;
  int* argc_;
  char*** argv_;
  CommOptions options_;
  LauncherVariables variables_;
  std::optional<Session> session_;
  LaunchInfo info_;
  std::unique_ptr<Communicator> world_;
  std::function<void(int)> before_abort_;
};

}  // namespace trireme::comm
