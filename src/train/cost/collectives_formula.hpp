#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/cost/update_facts.hpp"

namespace trireme {

/// What one rank does in one group with one operation for one purpose in an update.
struct CollectiveRow {
  std::string group;
  int size = 1;
  std::string operation;
  std::string purpose;
  std::uint64_t count = 0;
  std::uint64_t payload_bytes = 0;
  /// Sent to other ranks; absent where a library sends (nccl).
  std::optional<std::uint64_t> moved_bytes = {};

  bool operator==(const CollectiveRow&) const = default;
};

/// All collectives of an update on a rank, from the layout alone, sorted; groups of one rank have
/// none. What they come to in bytes on the wire: comm/p2p/volume.hpp.
std::vector<CollectiveRow> collectives_formula(const UpdateFacts& facts, int rank);

}  // namespace trireme
