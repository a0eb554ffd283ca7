#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/load/load.hpp"

namespace trireme {

/// Which rank writes which slices of which tensor; tensors without a list are left out.
struct ReshardLayout {
  struct RankSlice {
    int rank = 0;
    Slice part;
  };

  int num_ranks = 1;
  std::map<std::string, std::vector<RankSlice>> tensors;
};

/// All tensors laid end to end in name order and cut into `num_ranks` stretches of equal bytes:
/// what a data-parallel run of so many ranks would write, balanced to the element. Throws
/// Error(usage) for a number outside [1, 99999].
ReshardLayout spread_layout(const CheckpointManifest& manifest, std::int64_t num_ranks);

/// A description of slices, in JSON:
///
///   {"ranks": 4, "tensors": {"param/lm_head.weight": [
///      {"rank": 0, "offset": [0, 0], "extent": [3200, 512], "flat": [0, 1638400]}, ...]}}
///
/// `offset` and `extent` are the rectangle in the logical tensor, `flat` (may be left out: all) the
/// half-open range of the rectangle's row-major elements. Tensors not named are spread by bytes.
/// Throws Error(usage) for unknown tensors, ranks outside, slices that do not cover a tensor
/// exactly once; Error(data) for text that is not such JSON. `where` names the text.
ReshardLayout parse_layout(const std::string& text, const std::string& where,
                           const CheckpointManifest& manifest);

/// The layout a checkpoint has, as such a text.
std::string layout_text(const CheckpointManifest& manifest);

/// Collective: writes the same state as step-NNNNNNNNN of `folder` in another layout, by the same
/// protocol as a save, which is for the holder of its RunLock alone; one shard for each rank of the
/// layout, which the ranks of `world` share by bytes. Everything read is checked. Memory: the
/// largest shard, on each. Returns the new checkpoint's folder. Throws as load_tensors and
/// save_checkpoint.
std::filesystem::path reshard_checkpoint(const Checkpoint& from, const ReshardLayout& layout,
                                         const std::filesystem::path& folder, Communicator& world);

/// Collective: the weights alone ("param/"), with the model's values (is_model_value) and the carried
/// files, as step 0 of `folder`, a shard for each rank of `world`; as reshard_checkpoint otherwise.
std::filesystem::path publish_weights(const Checkpoint& from, const std::filesystem::path& folder,
                                      Communicator& world);

}  // namespace trireme
