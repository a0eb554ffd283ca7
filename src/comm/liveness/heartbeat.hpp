#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/liveness/heartbeat_stall.hpp"
#include "comm/session.hpp"

namespace trireme {

/// A rank that left without a goodbye, or announced that it ends with an error.
struct PeerLoss {
  int rank = -1;
  std::string hostname;
  int pid = 0;
  int exit_code = 5;   // what the survivors should end with: the announced code, else 5
  std::string reason;  // "its connection broke", "announced: ...", "silent for 60 s"
  bool hung = false;   // it lives but does not move, or waited in vain: stacks say more
};

struct HeartbeatOptions {
  double interval_s = 0.5;  // between two reports of a rank to rank 0
  double silence_s =
      60;         // a rank that reports nothing for so long is lost (stopped, or its node is)
  HangRule hang;  // all ranks stand still: rank 0 names the one behind, which counts as lost
  double connect_s = 60;  // time to connect all ranks at the start
  /// Runs once, on the heartbeat thread. Default: flush the logs and _exit(loss.exit_code) at once,
  /// before mpirun or the scheduler send their own signals to the survivors.
  std::function<void(const PeerLoss&)> on_loss;
};

/// Tells every rank at once when another one dies, without MPI, which never
/// notices a killed peer by itself.
///
/// Every rank keeps one TCP connection to rank 0 and one small thread.
/// A connection that ends without a goodbye is a death: the kernel closes it when
/// the process dies, keepalive probes find a lost node. Rank 0 passes the news on.
/// The thread also carries what each rank is doing (Activity): when nobody moves, rank 0
/// names the rank that is behind and, by the HangRule, all lose it.
///
/// Made collectively by all ranks of `world` (which carries rank 0's addresses and a random 128-bit
/// cookie that every connection must show); one rank: nothing is done. Throws Error(comm) if a rank
/// cannot connect in time.
class Heartbeat {
 public:
  Heartbeat(Communicator& world, const LaunchInfo& launch, std::shared_ptr<Activity> activity,
            HeartbeatOptions options = {});

  /// Says goodbye, as stop().
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Says goodbye, so that leaving is no loss to the others; in any order among ranks, bounded to
  /// about a second.
  void stop() noexcept;

  /// Tells all peers that this rank ends with an error; they run on_loss with this exit code.
  /// Returns when rank 0 has passed it on, or after a second. With the code of a lost peer it first
  /// waits a second for the news of which one. Call it before abort_job.
  void announce_failure(int exit_code, const std::string& why) noexcept;

 private:
  class Monitor;
  std::unique_ptr<Monitor> monitor_;  // null for one rank
};

/// One line per rank, the one that is behind first: fewest steps, then fewest operations, then not
/// waiting. `names[r]` is "rank 3 (host n2, pid 123)". Exposed for its test.
std::string describe_progress(const std::vector<std::string>& names,
                              const std::vector<ActivitySnapshot>& ranks);

}  // namespace trireme
