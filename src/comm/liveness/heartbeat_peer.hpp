#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/liveness/heartbeat_wire.hpp"
#include "comm/session.hpp"
#include "core/timer.hpp"

/// What the heartbeat knows of every rank, and how the ranks find each other at the start.
namespace trireme::heartbeat {

struct Peer {
  std::optional<Connection>
      connection;  // none: this rank itself, not known to us, or has said goodbye
  std::string host = "?";
  int pid = 0;
  RunningTimer heard;
  ActivitySnapshot now;
};

/// "rank 3 (host n2, pid 123)"
std::string name_of(int rank, const std::string& host, int pid);

/// Collective: everyone connects to rank 0 and shows the cookie that `world` carried. Fills the
/// connections, hosts and process ids of `peers` (one entry a rank). Throws Error(comm) on all
/// ranks if one cannot connect in time.
void connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                 std::vector<Peer>& peers);

}  // namespace trireme::heartbeat
