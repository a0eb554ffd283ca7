#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme {

/// How a rank reaches the others, as far as it can be set: its interfaces and the variables that
/// choose among them.
struct NetworkSettings {
  std::string host;
  std::string text;  // "eth0 10.0.0.1; NCCL_SOCKET_IFNAME=eth0"
};

/// Of this process: IPv4 interfaces that are up, and the variables of NCCL, UCX and OpenMPI's
/// transports that are set.
std::string own_network_settings();

/// A line for each run of ranks with the same host and text:
/// "\n  ranks 0 to 7 (host n1): eth0 10.0.0.1; no NCCL_* variable set".
std::string describe_network(const std::vector<NetworkSettings>& ranks);

/// Collective. describe_network of all ranks, on every rank; `host` is this one's.
std::string gather_network_settings(Communicator& world, const std::string& host);

}  // namespace trireme
