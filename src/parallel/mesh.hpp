#pragma once
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/config.hpp"

namespace trireme {

/// Named axes of the grid of ranks, fastest-varying first: rank = tp + t*(cp + c*(dp + d*pp)).
/// `data` is dp and cp together: the ranks that hold the same weights and different tokens. They
/// are `replica` copies of what `shard` neighbouring ranks hold together: one rank a copy without
/// ZeRO.
///
/// For experts the ranks of tp, cp and dp are a second grid: etp + ET*(ep + E*edp) = tp + t*(cp + c*dp). `etp`
/// cut each expert, `ep` hold different ones, `edp` the same: copies `expert_replica` of what
/// `expert_shard` hold together. Source: Liu et al., "MoE Parallel Folding", 2025.
enum class Axis {
  tp,
  cp,
  dp,
  pp,
  data,
  shard,
  replica,
  etp,
  ep,
  edp,
  expert_shard,
  expert_replica
};

inline constexpr std::array<std::string_view, 12> kAxisNames{
    "tp",      "cp",  "dp", "pp",  "data",         "shard",
    "replica", "etp", "ep", "edp", "expert_shard", "expert_replica"};

/// Where a rank stands on each axis of its own.
struct RankCoords {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;
  int etp = 0;
  int ep = 0;
  int edp = 0;
};

/// Of rank `rank` of `world_size`. Throws Error(usage) as data_ranks.
RankCoords rank_coords(const ParallelConfig& config, int world_size, int rank);

/// The ranks of `replica` in two levels.
struct NodeLevels {
  std::unique_ptr<Communicator> node;    // those on this rank's node
  std::unique_ptr<Communicator> across;  // one of each node
};

/// The grid of ranks and one communicator for each axis. All ranks build all groups in one order
/// (collective). Throws Error(usage) when the sizes do not divide the world.
class Mesh {
 public:
  /// `node_of_rank`: the nodes of all ranks of the world, for node_levels().
  Mesh(Communicator& world, const ParallelConfig& config,
       const std::vector<int>& node_of_rank = {});

  [[nodiscard]] Communicator& world() const { return world_; }

  [[nodiscard]] const ParallelConfig& config() const { return config_; }

  [[nodiscard]] Communicator& group(Axis axis) const {
    return *groups_[static_cast<std::size_t>(axis)];
  }

  /// Whether experts lie in the grid of etp, ep and edp.
  [[nodiscard]] bool folds_experts() const { return trireme::folds_experts(config_); }

  /// The ranks that hold a unit's weights together, and those that hold the same part of them: of one
  /// of experts in the second grid.
  [[nodiscard]] Communicator& shard_group(bool experts) const {
    return group(experts ? Axis::expert_shard : Axis::shard);
  }

  [[nodiscard]] Communicator& replica_group(bool experts) const {
    return group(experts ? Axis::expert_replica : Axis::replica);
  }

  /// The ranks that train as one between two averages (local_steps): they add up gradients. Without
  /// local steps, all that hold the same weights.
  [[nodiscard]] Communicator& grad_group() const {
    return group(trains_alone() ? Axis::cp : Axis::replica);
  }

  /// Whether the data ranks train on their own for some steps.
  [[nodiscard]] bool trains_alone() const { return config_.local_steps > 1 && size(Axis::dp) > 1; }

  /// For hierarchical reductions; null where nodes do not hold equally many replicas, two or more
  /// each, on two nodes or more.
  [[nodiscard]] const NodeLevels* node_levels() const { return node_levels_.get(); }

  [[nodiscard]] int size(Axis axis) const { return group(axis).size(); }

  [[nodiscard]] int rank(Axis axis) const { return group(axis).rank(); }

 private:
  void split_by_node(const std::vector<int>& node_of_rank);

  Communicator& world_;
  ParallelConfig config_;
  std::array<std::unique_ptr<Communicator>, kAxisNames.size()> groups_;
  std::unique_ptr<NodeLevels> node_levels_;
};

}  // namespace trireme
