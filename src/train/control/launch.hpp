#pragma once
#include <memory>
#include <string>

#include "comm/liveness/heartbeat.hpp"
#include "comm/liveness/watchdog_stacks.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"
#include "job/journal.hpp"
#include "job/run_folder.hpp"

/// Services of a training rank, in addition to comm/launch.hpp.
namespace trireme {

/// Returns options for communicators that the heartbeat watches. The heartbeat acts before their
/// timeout, because it knows the missing rank and requests stacks.
CommOptions watched_comm(double timeout_s);

/// Returns the heartbeat options for such communicators.
HeartbeatOptions watch_options(double timeout_s);

/// Returns advice after Error(comm). `network`: network settings of all ranks.
std::string network_advice(const std::string& network);

/// Watches one rank while it trains. If another rank is lost, this process writes its failure
/// report into the run directory (leave_run.hpp) and exits with the exit code of that loss. After
/// SIGUSR1 it writes its stacks there.
class RankWatch {
 public:
  /// Starts watching. `activity`: activity of the communicators. Sets `options.on_loss`. `network`:
  /// text that one rank shows if the network may be the cause. Collective.
  RankWatch(Communicator& world, const LaunchInfo& launch, const RunFolder& folder,
            std::shared_ptr<Journal> journal, std::shared_ptr<Activity> activity,
            HeartbeatOptions options, const std::string& network);

  /// Tells the other ranks that this rank ends with an error; they end with its exit code. Call it
  /// after the error message is written.
  void announce_failure(int code) noexcept;

 private:
  Heartbeat heartbeat_;
  StackRequests stack_requests_;
};

}  // namespace trireme
