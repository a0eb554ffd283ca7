#pragma once
#include <memory>
#include <string>

#include "comm/liveness/heartbeat.hpp"
#include "comm/liveness/watchdog_stacks.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"
#include "job/journal.hpp"
#include "job/run_folder.hpp"

/// What a rank of a trainer has beside comm/launch.hpp.
namespace trireme {

/// Options for the groups of a trainer: their operations are seen by the heartbeat, which acts
/// before they time out, because it knows who is missing and has the stacks written.
CommOptions watched_comm(double timeout_s);

/// The heartbeat beside such groups.
HeartbeatOptions watch_options(double timeout_s);

/// What to look at after Error(comm), with the settings of all ranks (`network`).
std::string network_advice(const std::string& network);

/// Watches over one rank while it trains. When a peer is lost, this process leaves its verdict in
/// the run folder and its journal (leave_run.hpp) and ends at once with the exit code of that loss; SIGUSR1 has its
/// stacks written there.
class RankWatch {
 public:
  /// Collective. `activity`: of the groups to watch. `options.on_loss` is set here. `network`: what
  /// one rank shows beside a loss that may be the network's (comm/liveness/network_settings.hpp).
  RankWatch(Communicator& world, const LaunchInfo& launch, const RunFolder& folder,
            std::shared_ptr<Journal> journal, std::shared_ptr<Activity> activity,
            HeartbeatOptions options, const std::string& network);

  /// This rank ends by an error of its own: the others end with its code. Its message is out by
  /// now.
  void announce_failure(int code) noexcept;

 private:
  Heartbeat heartbeat_;
  StackRequests stack_requests_;
};

}  // namespace trireme
