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

/// A rank that disconnected without notice or announced that it ends with an error.
struct PeerLoss {
  int rank = -1;
  std::string hostname;
  int pid = 0;
  int exit_code = 5;   // exit code for the surviving ranks: the announced code, otherwise 5
  std::string reason;  // "its connection broke", "announced: ...", "silent for 60 s"
  bool hung = false;   // the process lives but makes no progress; stacks show more
};

struct HeartbeatOptions {
  double interval_s = 0.5;  // interval between two reports of a rank to rank 0
  double silence_s = 60;  // a rank without reports for this long is lost (stopped, or its node is)
  HangRule hang;  // if all ranks stop making progress, the rank that is behind counts as lost
  double connect_s = 60;  // time limit for connecting all ranks at the start
  /// Runs once, on the heartbeat thread. The default flushes the logs and calls
  /// _exit(loss.exit_code) before mpirun or the scheduler send signals to the surviving ranks.
  std::function<void(const PeerLoss&)> on_loss;
};

/// Informs every rank at once when another rank dies. MPI does not detect a killed peer.
///
/// Every rank has one TCP connection to rank 0 and one small thread. A connection that ends without
/// a goodbye means a death: the kernel closes it when the process dies, and keepalive probes detect
/// a lost node. Rank 0 informs all ranks. The thread also sends the Activity of each rank. If no
/// rank makes progress, rank 0 names the rank that is behind, and by the HangRule all ranks treat
/// it as lost.
///
/// The constructor is collective over `world`, which carries rank 0's addresses and a random
/// 128-bit cookie that every connection must present. With one rank it does nothing. Throws
/// Error(comm) if a rank cannot connect in time.
class Heartbeat {
 public:
  Heartbeat(Communicator& world, const LaunchInfo& launch, std::shared_ptr<Activity> activity,
            HeartbeatOptions options = {});

  /// Calls stop().
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Says goodbye, so that other ranks do not treat this rank as lost. Ranks may stop in any order;
  /// takes at most about a second.
  void stop() noexcept;

  /// Tells all peers that this rank ends with an error; they run on_loss with this exit code.
  /// Returns when rank 0 has passed the message on, or after a second. If `exit_code` means a lost
  /// peer, it first waits up to a second for the report of which peer. Call it before abort_job().
  void announce_failure(int exit_code, const std::string& why) noexcept;

 private:
  class Monitor;
  std::unique_ptr<Monitor> monitor_;  // null for one rank
};

}  // namespace trireme::comm
