#include "train/planner/cluster.hpp"

#include <algorithm>

#include "core/problems.hpp"

namespace trireme::planner {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Sources: NVIDIA's data sheets of A100 SXM4, H100 SXM5 and H200 SXM; memory as nvidia-smi shows
// it. Links: bus bandwidth of nccl-tests in a node of eight GPUs (a ring), and of one 200 or 400
// Gbit/s adapter per GPU (23 of 25 and 46 of 50 GB/s are reached).
constexpr LinkSpeeds kA100Links{.node_bytes_per_s = 232e9, .network_bytes_per_s = 23e9};
constexpr LinkSpeeds kH100Links{.node_bytes_per_s = 370e9, .network_bytes_per_s = 46e9};
// Copies through memory between processes of one machine; 10 Gbit/s Ethernet.
constexpr LinkSpeeds kCpuLinks{.node_bytes_per_s = 2e9,
                               .network_bytes_per_s = 1.15e9,
                               .latencies = {.base_s = 20e-6,
                                             .ring_node_s = 20e-6,
                                             .ring_network_s = 50e-6,
                                             .tree_node_s = 20e-6,
                                             .tree_network_s = 50e-6}};
constexpr double kGpuHeld = 2 * kGiB;

const std::array<DeviceKind, 5> kKinds{{
    {"h100", 989.4e12, 79.1 * kGiB, 3.35e12, kH100Links, kGpuHeld},
    {"h200", 989.4e12, 139.8 * kGiB, 4.8e12, kH100Links, kGpuHeld},
    {"a100-80", 312e12, 79.1 * kGiB, 2.04e12, kA100Links, kGpuHeld},
    {"a100-40", 312e12, 39.4 * kGiB, 1.555e12, kA100Links, kGpuHeld},
    // A machine of two cores; use --calibration for its real speed.
    {"cpu", 400e9, 16 * kGiB, 20e9, kCpuLinks, 0, /*shares_node=*/true, /*cores=*/2},
}};

}  // namespace

std::vector<std::string> device_kind_names() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

const DeviceKind& device_kind(const std::string& name) {
  Problems problems;
  problems.one_of("--gpu", name, device_kind_names());
  problems.throw_if_any();
  return *std::ranges::find(kKinds, name, &DeviceKind::name);
}

}  // namespace trireme::planner
