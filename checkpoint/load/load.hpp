#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/state.hpp"
#include "comm/communicator.hpp"

/// Reading: any number of saved shards of any layout into slices of any other layout. Plain
/// reads only, at the places the manifest names; libhdf5 never sees a file that is being loaded.
/// Every slice is checked while it is read (slice_reader.hpp says how, and with how much memory).
namespace trireme {

/// One committed checkpoint with a verified manifest. The other files are
/// verified when they are read.
class Checkpoint {
 public:
  /// Throws Error(data) if the manifest is absent, damaged or inconsistent, or does not belong to
  /// the folder's step.
  static Checkpoint open(const std::filesystem::path& folder);
  /// Collective: the manifest as rank 0 reads it, on every rank; its error on all.
  static Checkpoint open(const std::filesystem::path& folder, Communicator& world);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  [[nodiscard]] const CheckpointManifest& manifest() const noexcept { return manifest_; }

  [[nodiscard]] std::int64_t step() const noexcept { return manifest_.step; }

  /// A carried file's content, verified. Throws Error(data) if it is absent or damaged.
  [[nodiscard]] std::string file(const std::string& name) const;
  [[nodiscard]] bool has_file(const std::string& name) const noexcept;

  /// A whole tensor, row-major, verified. Throws Error(data) if it is absent or damaged.
  [[nodiscard]] std::vector<std::byte> read_logical(const std::string& name) const;

 private:
  std::filesystem::path path_;
  CheckpointManifest manifest_;
};

struct LoadOptions {
  /// Tensors of these prefixes may stay unread ("optim/" for inference). All others must be wanted
  /// by some rank.
  std::vector<std::string> may_ignore;
};

/// Fills `into.tensors` (names, dtypes, shapes and slices given by the caller; owner or not) and,
/// when the tensors are read, replaces `into.values`; `into.files` stays as it is (use
/// Checkpoint::file). Throws Error(data) listing every missing, extra or mismatched tensor before
/// any byte is written, and for damage while reading; then the tensors' content is undefined
/// (find_newest_good verifies beforehand).
void load_tensors(const Checkpoint& checkpoint, StateDict& into, const LoadOptions& options = {});

/// Collective: as above, each rank its own slices; a tensor is extra only if no rank wants it, and
/// all ranks throw if one does. Slices that are not owned come from the rank that owns and reads
/// them, if there is one.
void load_tensors(const Checkpoint& checkpoint, StateDict& into, Communicator& world,
                  const LoadOptions& options = {});

}  // namespace trireme
