#include "train/planner/cluster.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

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

GroupShape group_shape(int ranks, int stride, int node_ranks) {
  return {ranks, std::clamp(node_ranks / std::max(1, stride), 1, std::max(1, ranks))};
}

double Network::bus_bytes_per_s(GroupShape group) const {
  if (group.nodes() == 1) return links_.node_bytes_per_s;
  const double adapters = group.per_node * links_.network_bytes_per_s;
  return group.per_node == 1 ? adapters : std::min(links_.node_bytes_per_s, adapters);
}

double Network::ring_latency_s(GroupShape group) const {
  const int across = group.nodes() - 1;
  return (group.ranks - 1 - across) * links_.latencies.ring_node_s +
         across * links_.latencies.ring_network_s;
}

double Network::ring_all_reduce_s(double bytes, GroupShape group) const {
  if (group.ranks == 1) return 0;
  const double share = 2.0 * (group.ranks - 1) / group.ranks;
  return links_.latencies.base_s + 2 * ring_latency_s(group) +
         share * bytes / bus_bytes_per_s(group);
}

double Network::tree_all_reduce_s(double bytes, GroupShape group) const {
  if (group.ranks == 1) return 0;
  constexpr double kOfBus = 0.9;
  const double latency = (group.per_node - 1) * links_.latencies.tree_node_s +
                         std::log2(group.nodes()) * links_.latencies.tree_network_s;
  return links_.latencies.base_s + 2 * latency + 2 * bytes / (kOfBus * bus_bytes_per_s(group));
}

double Network::all_reduce_s(double bytes, GroupShape group) const {
  return std::min(ring_all_reduce_s(bytes, group), tree_all_reduce_s(bytes, group));
}

double Network::gather_s(double bytes, GroupShape group) const {
  return ring_all_reduce_s(bytes, group) / 2;
}

double Network::all_to_all_s(double bytes, GroupShape group) const {
  if (group.ranks == 1) return 0;
  const double inside = bytes * (group.per_node - 1) / group.ranks / links_.node_bytes_per_s;
  const double across =
      bytes * (group.ranks - group.per_node) / group.ranks / links_.network_bytes_per_s;
  const double hop =
      group.nodes() > 1 ? links_.latencies.ring_network_s : links_.latencies.ring_node_s;
  return links_.latencies.base_s + hop + std::max(inside, across);
}

double Network::send_s(double bytes, bool across_nodes) const {
  return across_nodes ? links_.latencies.ring_network_s + bytes / links_.network_bytes_per_s
                      : links_.latencies.ring_node_s + bytes / links_.node_bytes_per_s;
}

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

const DeviceKind* kind_of_device(std::string_view device_name) {
  std::string lower(device_name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](std::string_view word) {
    const auto is_apart = [&](std::size_t at) {
      return at >= lower.size() || std::isalnum(static_cast<unsigned char>(lower[at])) == 0;
    };
    const std::size_t at = lower.find(word);
    return at != std::string::npos && is_apart(at - 1) && is_apart(at + word.size());
  };
  if (has("pcie") || has("nvl")) return nullptr;  // lower clocks and other links
  const auto found = std::ranges::find_if(kKinds, [&](const DeviceKind& kind) {
    return !kind.shares_node && has(kind.name.substr(0, kind.name.find('-')));
  });
  return found == kKinds.end() ? nullptr : &*found;
}

}  // namespace trireme::planner
