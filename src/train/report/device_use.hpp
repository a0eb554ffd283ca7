#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::train {

/// The devices that one rank uses and could use.
struct DeviceUse {
  int node = 0;
  int gpu = -1;      // index among its visible GPUs; -1: CPU
  int num_gpus = 0;  // number of visible GPUs
  int threads = 1;
  std::vector<std::uint64_t> cpus{};  // bit mask of the CPUs that it may run on
};

/// Returns the used and idle devices of each node, such as "node n1: 4 of 8 GPUs, 4 idle; ...".
/// Equal nodes share an entry. If each rank sees one GPU (--gpus-per-task), no GPU counts as idle.
std::string describe_devices(const std::vector<DeviceUse>& ranks);

/// Returns the devices of all ranks, on every rank. Collective.
std::vector<DeviceUse> gather_device_use(comm::Communicator& world, const DeviceUse& mine);

/// Returns the CPU affinity mask of this process.
std::vector<std::uint64_t> allowed_cpu_mask();

}  // namespace trireme::train
