#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::comm {

/// The network interfaces of a rank, and the environment variables that select one of them.
struct NetworkSettings {
  std::string host;
  std::string text;  // "eth0 10.0.0.1; NCCL_SOCKET_IFNAME=eth0"
};

/// Returns the settings of this process: the IPv4 interfaces that are up, and the environment
/// variables that are set for NCCL, UCX and the transports of Open MPI.
std::string own_network_settings();

/// Returns a line for each range of ranks with the same host and text: "\n ranks 0 to 7 (host n1):
/// eth0 10.0.0.1; no NCCL_* variable set".
std::string describe_network(const std::vector<NetworkSettings>& ranks);

/// Collective. Returns describe_network() of all ranks on every rank; `host` is this rank's host.
std::string gather_network_settings(Communicator& world, const std::string& host);

}  // namespace trireme::comm
