#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/liveness/heartbeat_stall.hpp"
#include "comm/session.hpp"

namespace trireme::comm {

/// A rank that is lost: its connection ended without a Goodbye message, it announced an error, or
/// it hangs.
struct PeerLoss {
  int rank = -1;
  std::string hostname;
  int pid = 0;
  int exit_code = 5;   // exit code of the surviving ranks: the announced code, or 5
  std::string reason;  // "its connection broke", "announced: ...", "silent for 60 s"
  bool hung = false;   // the process lives but makes no progress; stacks show more
};

struct HeartbeatOptions {
  double interval_s = 0.5;  // interval between two reports of a rank to rank 0
  double silence_s = 60;    // a rank that sends no report for this time is lost
  HangRule hang;            // if no rank makes progress, the rank that is behind counts as lost
  double connect_s = 60;    // time limit for connecting all ranks at the start
  /// Runs once, on the heartbeat thread. The default flushes the logs and calls
  /// _exit(loss.exit_code), so that this rank exits before mpirun or the scheduler kills it with a
  /// signal.
  std::function<void(const PeerLoss&)> on_loss;
};

/// Informs every rank at once when another rank dies. MPI does not detect a killed peer.
///
/// Every rank has one TCP connection and one small thread. The lowest rank of each node connects to
/// rank 0, and the other ranks of the node connect to this leader, so rank 0 has one connection for
/// each other node. If a connection ends without a Goodbye message, the rank is dead: the kernel
/// closes the connection when the process dies, and keepalive probes detect a lost node. Rank 0 and
/// the leaders inform all ranks. The thread also sends the Activity of each rank. If no rank makes
/// progress for the time of the HangRule, rank 0 reports which rank is behind the others, and all
/// ranks treat this rank as lost. If a leader leaves with a Goodbye message, the heartbeats of its
/// node end, too.
///
/// The constructor is collective over `world`: it broadcasts the addresses of rank 0 and of leaders,
/// and random 128-bit cookies, which every rank must send when it connects. With one rank, the
/// object does nothing. Throws Error(comm) if a rank cannot connect in time.
class Heartbeat {
 public:
  Heartbeat(Communicator& world, const LaunchInfo& launch, std::shared_ptr<Activity> activity,
            HeartbeatOptions options = {});

  /// Calls stop().
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Sends a Goodbye message, so that other ranks do not treat this rank as lost. Ranks may stop in
  /// any order. The call takes at most about one second.
  void stop() noexcept;

  /// Tells all peers that this rank ends with an error; the peers call on_loss with this exit code.
  /// Returns when rank 0 has forwarded the message, or after one second. If `exit_code` is 5
  /// (another rank failed), first waits up to one second for the report of rank 0 about the lost
  /// peer. Call it before abort_job().
  void announce_failure(int exit_code, const std::string& why) noexcept;

 private:
  class Monitor;
  std::unique_ptr<Monitor> monitor_;  // null for one rank
};

}  // namespace trireme::comm
