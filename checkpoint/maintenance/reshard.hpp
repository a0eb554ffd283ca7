#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/load/load.hpp"

namespace trireme::checkpoint {

/// Maps slices of tensors to the ranks that write them. Tensors without a list are omitted.
struct ReshardLayout {
  struct RankSlice {
    int rank = 0;
    parallel::Slice part;
  };

  int num_ranks = 1;
  std::map<std::string, std::vector<RankSlice>> tensors;
};

/// Splits all tensors over `num_ranks` ranks like a data-parallel run of that size: concatenates
/// the tensors in name order and cuts the result into ranges of equal bytes (the sizes differ by at
/// most one element). Throws Error(usage) for a number outside [1, 99999].
ReshardLayout spread_layout(const CheckpointManifest& manifest, std::int64_t num_ranks);

/// Parses a description of slices in JSON:
///
///   {"ranks": 4, "tensors": {"param/lm_head.weight": [
///      {"rank": 0, "offset": [0, 0], "extent": [3200, 512], "flat": [0, 1638400]}, ...]}}
///
/// `offset` and `extent` are the rectangle in the logical tensor. `flat` is the half-open range of
/// the row-major elements of the rectangle; without it, all elements. Tensors that are not listed
/// are split by bytes. Throws Error(usage) for unknown tensors, invalid ranks and slices that do
/// not cover a tensor exactly once; Error(data) for invalid JSON. `where` names the source of the
/// text in errors.
ReshardLayout parse_layout(const std::string& text, const std::string& where,
                           const CheckpointManifest& manifest);

/// Returns the layout of a checkpoint in the format of parse_layout().
std::string layout_text(const CheckpointManifest& manifest);

/// Writes the state of `from` with another layout as step-NNNNNNNNN of `directory`, with the same
/// protocol as a save. The caller must hold the RunLock. Each rank of the new layout gets one
/// shard; the ranks of `world` share the work of writing the shards. Verifies all bytes that it
/// reads. Each rank needs memory for its largest shard. Returns the directory of the new
/// checkpoint. Collective. Throws like load_tensors and save_checkpoint.
std::filesystem::path reshard_checkpoint(const Checkpoint& from, const ReshardLayout& layout,
                                         const std::filesystem::path& directory,
                                         comm::Communicator& world);

/// Writes only the weights ("param/"), the values of the model (is_model_value) and the copied
/// files as step 0 of `directory`, with one shard per rank of `world`. In all other respects like
/// reshard_checkpoint(). Collective.
std::filesystem::path publish_weights(const Checkpoint& from,
                                      const std::filesystem::path& directory,
                                      comm::Communicator& world);

}  // namespace trireme::checkpoint
