#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/state.hpp"
#include "comm/communicator.hpp"

/// Reads any number of saved shards of any layout into slices of any other layout. Reads only at
/// the positions that the manifest names; libhdf5 never opens a file that is being loaded. Checks
/// every slice while reading it (slice_reader.hpp describes the checks and the memory).
namespace trireme::checkpoint {

/// One committed checkpoint with a verified manifest. The other files are verified when they are
/// read.
class Checkpoint {
 public:
  /// Throws Error(data) if the manifest is missing, damaged or inconsistent, or does not belong to
  /// the step of the directory.
  static Checkpoint open(const std::filesystem::path& directory);
  /// Rank 0 reads the manifest for all ranks; all ranks throw its error. Collective.
  static Checkpoint open(const std::filesystem::path& directory, comm::Communicator& world);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  [[nodiscard]] const CheckpointManifest& manifest() const noexcept { return manifest_; }

  [[nodiscard]] std::int64_t step() const noexcept { return manifest_.step; }

  /// Returns the verified content of a copied file. Throws Error(data) if it is missing or damaged.
  [[nodiscard]] std::string file(const std::string& name) const;
  [[nodiscard]] bool has_file(const std::string& name) const noexcept;

  /// Returns a verified whole tensor in row-major order. Throws Error(data) if it is missing or
  /// damaged.
  [[nodiscard]] std::vector<std::byte> read_logical(const std::string& name) const;

  /// Returns this checkpoint with the EMA of the weights in place of the weights: "param/X" is the
  /// tensor that the files name "optim/ema/X". Throws Error(usage) if it has no EMA.
  [[nodiscard]] Checkpoint with_ema_weights() const;

 private:
  std::filesystem::path path_;
  CheckpointManifest manifest_;
};

struct LoadOptions {
  /// Tensors with these name prefixes may stay unread ("optim/" for inference). All other tensors
  /// must be requested by some rank.
  std::vector<std::string> may_ignore;
};

/// Fills `into.tensors`; the caller sets names, dtypes, shapes and slices. Then replaces
/// `into.values`. Does not change `into.files` (use Checkpoint::file). Throws Error(data) listing
/// every missing, extra or mismatched tensor before any byte is written. Throws Error(data) for
/// damage while reading; then the content of the tensors is undefined (find_newest_good verifies
/// beforehand).
void load_tensors(const Checkpoint& checkpoint, StateDict& into, const LoadOptions& options = {});

/// Like load_tensors above, each rank with its own slices. A tensor is extra only if no rank
/// requests it. Slices that are not owned come from the rank that owns and reads them, if there is
/// one. Collective; all ranks throw if one does.
void load_tensors(const Checkpoint& checkpoint, StateDict& into, comm::Communicator& world,
                  const LoadOptions& options = {});

}  // namespace trireme::checkpoint
