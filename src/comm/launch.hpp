#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "comm/launchers.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"
#include "comm/start_watch.hpp"

/// Starting and leaving a rank: from main to its exit code.
namespace trireme {

/// For worlds whose ranks meet at the end of hours of work of their own.
inline constexpr double kNoTimeout_s = 1e9;

/// The rest of main on one rank: what `body` returns or throws as exit code and one message
/// (run_main.hpp). AgreedError and PeerFailed (agree.hpp) are known to all ranks, and each ends by
/// itself; after any other error the peers may wait in a collective, and `abandon` is called.
int run_rank(const char* program, const std::function<int()>& body,
             const std::function<void(int code)>& abandon);

/// One rank of a start, from main to its exit code. One per process, in main. The log knows the
/// rank from the constructor on.
class Launch {
 public:
  /// Reads what launchers say in the environment; MPI stays down. `options`: of world().
  Launch(const char* program, int* argc, char*** argv, const CommOptions& options);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// This rank's place: until start() as the launcher tells it, then as MPI does.
  [[nodiscard]] const LaunchInfo& info() const noexcept { return info_; }

  /// Returns the communicator of all ranks: after start() or start_alone() only.
  [[nodiscard]] Communicator& world() const noexcept { return *world_; }

  /// Returns what launchers said before MPI came up.
  [[nodiscard]] const LauncherVariables& variables() const noexcept { return variables_; }

  /// Brings up MPI and world(), collectively, within `limit`. A process that is alone
  /// (launchers.hpp) needs no MPI. Call start or start_alone once. Throws as Session.
  void start(const StartLimit& limit);

  /// Makes world() a communicator of this process alone, for a command that needs no ranks: MPI
  /// stays down, whatever started this process.
  void start_alone();

  /// Called when this rank ends by an error of its own, before the others are ended by force.
  void before_abort(std::function<void(int code)> tell) { tell_ = std::move(tell); }

  /// run_rank, which ends the whole job when this rank abandons it; to be called once.
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
  std::function<void(int)> tell_;
};

}  // namespace trireme
