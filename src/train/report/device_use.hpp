#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session.hpp"

namespace trireme {

/// What one rank computes on, and what it could.
struct DeviceUse {
  int node = 0;
  int gpu = -1;      // among those it sees; -1: the CPU
  int num_gpus = 0;  // that it sees
  int threads = 1;
  std::vector<std::uint64_t> cpus{};  // it may run on: a bit each
};

/// What is used on each node and what idles: "devices: node n1: 4 of 8 GPUs, 4 idle; ...", equal
/// nodes together. Ranks that see one GPU each (--gpus-per-task) have theirs alone.
std::string describe_devices(const std::vector<DeviceUse>& ranks);

/// Collective: of all ranks, on every rank.
std::vector<DeviceUse> gather_device_use(Communicator& world, const DeviceUse& mine);

/// This process: the processors of its mask.
std::vector<std::uint64_t> allowed_cpus();

}  // namespace trireme
