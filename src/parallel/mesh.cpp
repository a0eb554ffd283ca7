#include "parallel/mesh.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/problems.hpp"

namespace trireme::parallel {
namespace {

/// The position of this rank among the replicas of its group.
struct NodePlace {
  int node = 0;
  int place = 0;          // index among the members on its node
  int first_on_node = 0;  // the first member on its node
};

std::optional<NodePlace> place_in_nodes(const std::vector<int>& members,
                                        const std::vector<int>& node_of_rank, int rank) {
  const auto node_of = [&](int one) { return node_of_rank[static_cast<std::size_t>(one)]; };
  NodePlace mine{node_of(rank), 0, rank};
  std::map<int, int> ranks_of_node;
  for (const int member : members) {
    ++ranks_of_node[node_of(member)];
    if (node_of(member) != mine.node) continue;
    if (member < rank) ++mine.place;
    mine.first_on_node = std::min(mine.first_on_node, member);
  }
  const int ranks = ranks_of_node[mine.node];
  const bool equal = std::all_of(ranks_of_node.begin(), ranks_of_node.end(),
                                 [&](const auto& one) { return one.second == ranks; });
  if (!equal || ranks == 1 || ranks_of_node.size() == 1) return std::nullopt;
  return mine;
}

}  // namespace

RankCoords rank_coords(const ParallelConfig& config, int world_size, int rank) {
  const auto tp = static_cast<int>(config.tp);
  const auto cp = static_cast<int>(config.cp);
  const int dp = data_ranks(config, world_size);
  const auto etp = static_cast<int>(expert_tensor_ranks(config));
  const auto ep = static_cast<int>(config.ep);
  const int in_stage = rank % (tp * cp * dp);
  return {rank % tp,      rank / tp % cp,      rank / (tp * cp) % dp, rank / (tp * cp * dp),
          in_stage % etp, in_stage / etp % ep, in_stage / (etp * ep)};
}

Mesh::Mesh(comm::Communicator& world, const ParallelConfig& config,
           const std::vector<int>& node_of_rank)
    : world_(world), config_(config) {
  Problems problems;
  check(config, problems);
  problems.throw_if_any();
  const auto tp = static_cast<int>(config.tp);
  const auto cp = static_cast<int>(config.cp);
  const auto pp = static_cast<int>(config.pp);
  const int dp = data_ranks(config, world.size());
  const RankCoords at = rank_coords(config, world.size(), world.rank());
  const auto shards = static_cast<int>(shard_ranks(config, cp * dp));
  const int at_data = at.cp + cp * at.dp;
  const int at_model = at.tp + tp * at.pp;
  const auto etp = static_cast<int>(expert_tensor_ranks(config));
  const auto ep = static_cast<int>(config.ep);
  const int edp = expert_data_ranks(config, world.size());
  const int expert_shards = expert_shard_ranks(config, world.size());
  const int at_expert = at.etp + etp * (at.ep + ep * at.pp);
  const int expert_models = etp * ep * pp;
  // The color of a group encodes the coordinates on all other axes.
  const std::array<int, kAxisNames.size()> colors{
      at.cp + cp * (at.dp + dp * at.pp),
      at.tp + tp * (at.dp + dp * at.pp),
      at.tp + tp * (at.cp + cp * at.pp),
      at.tp + tp * (at.cp + cp * at.dp),
      at_model,
      at_model + tp * pp * (at_data / shards),
      at_model + tp * pp * (at_data % shards),
      at.ep + ep * (at.edp + edp * at.pp),
      at.etp + etp * (at.edp + edp * at.pp),
      at_expert,
      at_expert + expert_models * (at.edp / expert_shards),
      at_expert + expert_models * (at.edp % expert_shards)};
  for (std::size_t i = 0; i < groups_.size(); ++i)
    groups_[i] = world.split(colors[i], world.rank(), std::string(kAxisNames[i]));
  if (config.hierarchical && !node_of_rank.empty()) split_by_node(node_of_rank);
}

void Mesh::split_by_node(const std::vector<int>& node_of_rank) {
  // Replicas are neighbors on the data axis, `shard` apart.
  const int stride = static_cast<int>(config_.tp) * size(Axis::shard);
  const int first = world_.rank() - rank(Axis::replica) * stride;
  std::vector<int> members;
  for (int i = 0; i < size(Axis::replica); ++i) members.push_back(first + i * stride);
  const auto mine = place_in_nodes(members, node_of_rank, world_.rank());
  const auto name = [](const char* what) {
    return cat(kAxisNames[static_cast<std::size_t>(Axis::replica)], what);
  };
  // The colors are ranks of members, because each rank is a member of one group only.
  NodeLevels levels;
  levels.node = world_.split(mine ? mine->first_on_node : -1, world_.rank(), name(" node"));
  levels.across = world_.split(mine ? members[static_cast<std::size_t>(mine->place)] : -1,
                               world_.rank(), name(" across"));
  if (mine) node_levels_ = std::make_unique<NodeLevels>(std::move(levels));
}

}  // namespace trireme::parallel
