#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

/// Thrown when a stop signal came: the partition in hand is given up, nothing is lost but its work.
struct PartitionDropped {};

/// How the shards of a folder are compared with the inputs as they are now.
struct InputCheck {
  std::vector<std::size_t> partitions;  // that this rank compares, in the order they are read best
  /// What /meta's input_xxh3 would be now; may throw PartitionDropped.
  std::function<std::string(std::size_t partition)> hash;
  std::function<std::string(std::size_t partition)> place;  // the partition's inputs, for a message
};

/// Fingerprints see the size and the ends of an input only. This sees every byte: a shard in
/// `folder` is of the inputs as they are if its input_xxh3 is. Returns the partitions that were not
/// compared because a stop signal came. Throws Error(usage) naming the first input that has
/// changed, Error(data) for a damaged shard, and what `hash` throws.
std::uint64_t check_inputs_unchanged(const std::filesystem::path& folder, const InputCheck& check);

/// Those of `order` that are kept (not in `pending`, ascending; none: all are kept).
std::vector<std::size_t> kept_partitions(const std::vector<std::size_t>& order,
                                         const std::optional<std::vector<std::size_t>>& pending);

}  // namespace trireme
