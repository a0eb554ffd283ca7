#include "parallel/mesh.hpp"

#include <string>

#include "core/problems.hpp"

namespace trireme {

Mesh::Mesh(Communicator& world, const ParallelConfig& config) : world_(world), config_(config) {
  Problems problems;
  check(config, problems);
  problems.throw_if_any();
  const auto tp = static_cast<int>(config.tp);
  const auto cp = static_cast<int>(config.cp);
  const int dp = data_ranks(config, world.size());
  const int at_tp = world.rank() % tp;
  const int at_cp = world.rank() / tp % cp;
  const int at_dp = world.rank() / (tp * cp) % dp;
  const int at_pp = world.rank() / (tp * cp * dp);
  const auto shards = static_cast<int>(shard_ranks(config, cp * dp));
  const int at_data = at_cp + cp * at_dp;
  const int at_model = at_tp + tp * at_pp;
  // The color of a group is the position on every other axis.
  const std::array<int, kAxisNames.size()> colors{
      at_cp + cp * (at_dp + dp * at_pp),
      at_tp + tp * (at_dp + dp * at_pp),
      at_tp + tp * (at_cp + cp * at_pp),
      at_tp + tp * (at_cp + cp * at_dp),
      at_model,
      at_model + tp * static_cast<int>(config.pp) * (at_data / shards),
      at_model + tp * static_cast<int>(config.pp) * (at_data % shards)};
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i] = world.split(colors[i], world.rank(), std::string(kAxisNames[i]));
  }
}

}  // namespace trireme
