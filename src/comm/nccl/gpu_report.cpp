#include <map>
#include <set>

#include "comm/nccl/nccl_backend.hpp"
#include "core/error.hpp"

namespace trireme {

GpuReport compare_gpus(const std::vector<GpuUse>& ranks) {
  struct Node {
    std::string hostname;
    std::map<std::string, std::vector<std::size_t>> users;  // bus id -> ranks
    std::set<std::string> visible;
  };

  std::map<int, Node> nodes;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Node& node = nodes[ranks[r].node];
    node.hostname = ranks[r].hostname;
    node.users[ranks[r].used].push_back(r);
    node.visible.insert(ranks[r].visible.begin(), ranks[r].visible.end());
  }
  GpuReport report;
  for (const auto& [number, node] : nodes) {
    for (const auto& [bus_id, users] : node.users) {
      if (users.size() < 2) continue;
      std::string who;
      for (const std::size_t r : users) who += cat(who.empty() ? "" : ", ", r);
      report.shared +=
          formatted("{}ranks {} share GPU {} of node {} ({})", report.shared.empty() ? "" : "; ",
                    who, bus_id, number, node.hostname);
    }
    for (const auto& bus_id : node.visible) {
      if (node.users.count(bus_id) > 0) continue;
      report.idle += formatted("{}GPU {} of node {} ({}) is visible but no rank uses it",
                               report.idle.empty() ? "" : "; ", bus_id, number, node.hostname);
    }
  }
  return report;
}

}  // namespace trireme
