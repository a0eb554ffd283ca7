#pragma once
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/config.hpp"

namespace trireme::parallel {

/// Named axes of the grid of ranks, fastest-varying first: rank = tp + t*(cp + c*(dp + d*pp)).
/// `data` combines dp and cp: these ranks have the same weights and different tokens. They hold
/// `replica` copies of the state. The `shard` neighboring ranks of a copy hold that copy together.
/// Without ZeRO, each rank holds a whole copy.
///
/// For experts, the ranks of tp, cp and dp form a second grid: etp + ET*(ep + E*edp) = tp + t*(cp +
/// c*dp). `etp` ranks split each expert, `ep` ranks hold different experts, and `edp` ranks hold
/// the same experts. The `edp` ranks hold `expert_replica` copies, and `expert_shard` ranks hold
/// each copy together. Source: Liu et al., "MoE Parallel Folding", 2025.
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

/// The coordinates of a rank on the axes that are neither combinations nor parts of other axes.
struct RankCoords {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;
  int etp = 0;
  int ep = 0;
  int edp = 0;
};

/// Returns the coordinates of rank `rank` of `world_size`. Throws Error(usage) like data_ranks().
RankCoords rank_coords(const ParallelConfig& config, int world_size, int rank);

/// The ranks of axis `replica`, grouped in two levels for hierarchical reductions.
struct NodeLevels {
  std::unique_ptr<comm::Communicator> node;    // the replicas on this rank's node
  std::unique_ptr<comm::Communicator> across;  // one replica of each node
};

/// The grid of ranks with one communicator for each axis. The constructor is collective: all ranks
/// create all groups in the same order. Throws Error(usage) if the sizes do not divide the world.
class Mesh {
 public:
  /// `node_of_rank` gives the node of every world rank, for node_levels().
  Mesh(comm::Communicator& world, const ParallelConfig& config,
       const std::vector<int>& node_of_rank = {});

  [[nodiscard]] comm::Communicator& world() const { return world_; }

  [[nodiscard]] const ParallelConfig& config() const { return config_; }

  [[nodiscard]] comm::Communicator& group(Axis axis) const {
    return *groups_[static_cast<std::size_t>(axis)];
  }

  /// Returns true if experts use the grid of etp, ep and edp.
  [[nodiscard]] bool has_expert_grid() const { return trireme::parallel::has_expert_grid(config_); }

  /// Returns the ranks that together hold one copy of a unit's weights. With `experts`, the unit is
  /// an expert unit. replica_group() returns the ranks that hold the same part of the unit.
  [[nodiscard]] comm::Communicator& shard_group(bool experts) const {
    return group(experts ? Axis::expert_shard : Axis::shard);
  }

  [[nodiscard]] comm::Communicator& replica_group(bool experts) const {
    return group(experts ? Axis::expert_replica : Axis::replica);
  }

  /// Returns the ranks that sum gradients in every update. Without local steps, these are all ranks
  /// that hold the same weights. With local steps, these are the cp ranks; the dp ranks only
  /// average their weights from time to time.
  [[nodiscard]] comm::Communicator& grad_group() const {
    return group(has_local_steps() ? Axis::cp : Axis::replica);
  }

  /// Returns true if the data ranks train independently for some steps.
  [[nodiscard]] bool has_local_steps() const {
    return config_.local_steps > 1 && size(Axis::dp) > 1;
  }

  /// Returns the levels for hierarchical reductions. Returns null unless there are at least two
  /// nodes, and every node has the same number of replicas, at least two.
  [[nodiscard]] const NodeLevels* node_levels() const { return node_levels_.get(); }

  [[nodiscard]] int size(Axis axis) const { return group(axis).size(); }

  [[nodiscard]] int rank(Axis axis) const { return group(axis).rank(); }

 private:
  void split_by_node(const std::vector<int>& node_of_rank);

  comm::Communicator& world_;
  ParallelConfig config_;
  std::array<std::unique_ptr<comm::Communicator>, kAxisNames.size()> groups_;
  std::unique_ptr<NodeLevels> node_levels_;
};

}  // namespace trireme::parallel
