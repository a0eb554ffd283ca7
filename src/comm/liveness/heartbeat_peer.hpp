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

/// Connects the ranks to a tree. The lowest rank of each node is its leader: it connects to rank 0,
/// and the other ranks of the node connect to it. So rank 0 has a connection to each other rank of
/// its node and to each other leader. If all ranks are on one node, or each on its own, all ranks
/// connect to rank 0.
///
/// A rank that accepts connections first broadcasts a cookie over the group of these ranks and
/// checks it. Fills the connections, hosts and process ids in `peers` (one entry per rank; rank 0
/// learns those behind leaders by Member messages). Returns the rank that this rank has connected
/// to; -1 on rank 0. If one rank cannot connect in time, throws Error(comm) on all ranks.
/// Collective.
int connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                std::vector<Peer>& peers);

}  // namespace trireme::comm::heartbeat
