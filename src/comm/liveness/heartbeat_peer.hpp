#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/liveness/heartbeat_wire.hpp"
#include "comm/session.hpp"
#include "core/timer.hpp"

/// Stores the known state of every rank, and connects the ranks at the start.
namespace trireme::comm::heartbeat {

struct Peer {
  /// Empty for this rank itself, for a rank that is not connected to this rank, and after a Goodbye
  /// message.
  std::optional<Connection> connection;
  std::string host = "?";
  int pid = 0;
  RunningTimer heard;
  ActivitySnapshot now;
};

/// Returns "rank 3 (host n2, pid 123)".
std::string name_of(int rank, const std::string& host, int pid);

/// Connects every rank to rank 0 and checks the cookie that rank 0 broadcast over `world`. Fills
/// the connections, hosts and process ids in `peers` (one entry per rank). If one rank cannot
/// connect in time, throws Error(comm) on all ranks. Collective.
void connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                 std::vector<Peer>& peers);

}  // namespace trireme::comm::heartbeat
