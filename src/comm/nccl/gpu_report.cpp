#include <map>
#include <set>

#include "comm/nccl/nccl_backend.hpp"
#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::comm {

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
  std::vector<std::string> shared;
  std::vector<std::string> idle;
  for (const auto& [number, node] : nodes) {
    for (const auto& [bus_id, users] : node.users) {
      if (users.size() < 2) continue;
      shared.push_back(formatted("ranks {} share GPU {} of node {} ({})", joined(users, ", "),
                                 bus_id, number, node.hostname));
    }
    for (const auto& bus_id : node.visible) {
      if (node.users.count(bus_id) > 0) continue;
      idle.push_back(formatted("GPU {} of node {} ({}) is visible but no rank uses it", bus_id,
                               number, node.hostname));
    }
  }
  return {joined(shared, "; "), joined(idle, "; ")};
}

}  // namespace trireme::comm
