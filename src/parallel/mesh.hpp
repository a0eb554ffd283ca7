#pragma once
#include <array>
#include <memory>
#include <string_view>

#include "comm/communicator.hpp"
#include "parallel/config.hpp"

namespace trireme {

/// Named axes of the grid of ranks, fastest-varying first: rank = tp + t*(cp + c*(dp + d*pp)).
/// `data` is dp and cp together: the ranks that hold the same weights and different tokens. They
/// are `replica` copies of what `shard` neighbouring ranks hold together: one rank a copy without
/// ZeRO.
enum class Axis { tp, cp, dp, pp, data, shard, replica };

inline constexpr std::array<std::string_view, 7> kAxisNames{"tp",   "cp",    "dp",     "pp",
                                                            "data", "shard", "replica"};

/// The grid of ranks and one communicator for each axis. All ranks build all groups in one order
/// (collective). Throws Error(usage) when the sizes do not divide the world, or when a layout needs
/// an engine that this build lacks.
class Mesh {
 public:
  Mesh(Communicator& world, const ParallelConfig& config);

  [[nodiscard]] Communicator& world() const { return world_; }

  [[nodiscard]] const ParallelConfig& config() const { return config_; }

  [[nodiscard]] Communicator& group(Axis axis) const {
    return *groups_[static_cast<std::size_t>(axis)];
  }

  [[nodiscard]] int size(Axis axis) const { return group(axis).size(); }

  [[nodiscard]] int rank(Axis axis) const { return group(axis).rank(); }

 private:
  Communicator& world_;
  ParallelConfig config_;
  std::array<std::unique_ptr<Communicator>, kAxisNames.size()> groups_;
};

}  // namespace trireme
