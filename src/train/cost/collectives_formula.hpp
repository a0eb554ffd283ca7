#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/cost/update_facts.hpp"

namespace trireme::train {

/// The calls of one collective operation for one purpose by one rank in one group, in one optimizer
/// step.
struct CollectiveRow {
  std::string group;
  int size = 1;
  std::string operation;
  std::string purpose;
  std::uint64_t count = 0;
  std::uint64_t payload_bytes = 0;
  /// Bytes sent to other ranks; absent if a library decides (NCCL).
  std::optional<std::uint64_t> moved_bytes = {};

  bool operator==(const CollectiveRow&) const = default;
};

/// Returns all collectives of a rank in one optimizer step, computed from the layout alone and
/// sorted. Groups of one rank have none. Bytes on the wire: comm/p2p/volume.hpp.
std::vector<CollectiveRow> collectives_formula(const UpdateFacts& facts, int rank);

}  // namespace trireme::train
