#include "train/planner/network.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::planner {

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

}  // namespace trireme::planner
