#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/liveness/heartbeat_wire.hpp"
#include "comm/session.hpp"
#include "core/timer.hpp"

/// The known state of every rank, and the connection of the ranks at the start.
namespace trireme::comm::heartbeat {

struct Peer {
  /// Empty for this rank itself, for a rank without a connection here, and after a goodbye.
  std::optional<Connection> connection;
  std::string host = "?";
  int pid = 0;
  RunningTimer heard;
  ActivitySnapshot now;
};

/// Returns "rank 3 (host n2, pid 123)".
std::string name_of(int rank, const std::string& host, int pid);

/// Collective. Connects every rank to rank 0 and checks the cookie that `world` carried. Fills the
/// connections, hosts and process ids of `peers` (one entry per rank). Throws Error(comm) on all
/// ranks if one rank cannot connect in time.
void connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                 std::vector<Peer>& peers);

}  // namespace trireme::comm::heartbeat
