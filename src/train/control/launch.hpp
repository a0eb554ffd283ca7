#pragma once
#include <memory>
#include <string>

#include "comm/liveness/heartbeat.hpp"
#include "comm/liveness/watchdog_stacks.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"

/// Services of a training rank, in addition to comm/launch.hpp.
namespace trireme::train {

/// Returns options for communicators that the heartbeat watches. The heartbeat acts before their
/// timeout, because it knows the missing rank and requests stacks.
comm::CommOptions comm_options_with_heartbeat(double timeout_s);

/// Returns the heartbeat options for such communicators.
comm::HeartbeatOptions heartbeat_options(double timeout_s);

/// Returns advice after Error(comm). `network`: network settings of all ranks.
std::string network_advice(const std::string& network);

/// Watches one rank while it trains. If another rank is lost, this process writes its failure
/// report into the run directory (peer_failure.hpp) and exits with the exit code of that
/// loss. After SIGUSR1 it writes its stacks there.
class RankWatch {
 public:
  /// Starts watching. `activity`: activity of the communicators. Sets `options.on_loss`. `network`:
  /// text that one rank shows if the network may be the cause. Collective.
  RankWatch(comm::Communicator& world, const comm::LaunchInfo& launch,
            const job::RunDirectory& folder, std::shared_ptr<job::EventLog> event_log,
            std::shared_ptr<comm::Activity> activity, comm::HeartbeatOptions options,
            const std::string& network);

  /// Tells the other ranks that this rank ends with an error; they end with its exit code. Call it
  /// after the error message is written.
  void announce_failure(int code) noexcept;

 private:
  comm::Heartbeat heartbeat_;
  comm::StackRequests stack_requests_;
};

}  // namespace trireme::train
