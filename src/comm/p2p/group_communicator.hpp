#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/options.hpp"
#include "comm/p2p/engine.hpp"
#include "comm/p2p/p2p_communicator.hpp"
#include "comm/p2p/transport.hpp"

namespace trireme::comm {

/// A transport that puts a group number into each message. A group is a number and a list of world
/// ranks, so the layer below needs no support for groups.
class GroupTransport : public Transport {
 public:
  /// `world_ranks` lists the group's members; `rank` is this rank's index among them.
  GroupTransport(std::uint64_t group, std::vector<int> world_ranks, int rank)
      : group_(group), world_ranks_(std::move(world_ranks)), rank_(rank) {}

  [[nodiscard]] int rank() const final { return rank_; }

  [[nodiscard]] int size() const final { return static_cast<int>(world_ranks_.size()); }

  [[nodiscard]] int max_tag() const final { return 1 << 30; }

  [[nodiscard]] std::uint64_t group() const { return group_; }

  [[nodiscard]] int world_rank(int rank) const {
    return world_ranks_[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] virtual const char* backend() const = 0;

  /// Returns a transport of the same world for another group.
  [[nodiscard]] virtual std::shared_ptr<GroupTransport> another(std::uint64_t group,
                                                                std::vector<int> world_ranks,
                                                                int rank) const = 0;

 private:
  const std::uint64_t group_;  // 0 for the world
  const std::vector<int> world_ranks_;
  const int rank_;
};

/// Creates a communicator over `transport`. All groups of a rank use the same engine. A group of
/// one rank is a SelfCommunicator.
std::unique_ptr<Communicator> make_group(std::string name,
                                         const std::shared_ptr<GroupTransport>& transport,
                                         std::shared_ptr<Engine> engine,
                                         const CommOptions& options);

}  // namespace trireme::comm
