#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/token_set.hpp"

namespace trireme {

/// An empty file that lies in a pack's folder while this lives. Throws Error(resource) if it cannot
/// be made.
class UnitMarker {
 public:
  explicit UnitMarker(std::filesystem::path path);
  ~UnitMarker();
  UnitMarker(const UnitMarker&) = delete;
  UnitMarker& operator=(const UnitMarker&) = delete;
  UnitMarker(UnitMarker&&) = delete;
  UnitMarker& operator=(UnitMarker&&) = delete;

 private:
  std::filesystem::path path_;
};

/// The output folder of a pack: which shards are done, and nobody else's files. The folder itself
/// is the journal: a unit is done exactly when its shard lies there under its final name, whole,
/// with this pack's identity.
class PackFolder {
 public:
  /// `identity` stands for everything that decides the bytes. Call prepare before anything else.
  PackFolder(std::filesystem::path path, std::string identity, std::size_t num_units)
      : path_(std::move(path)), identity_(std::move(identity)), num_units_(num_units) {}

  /// One rank only: makes the folder, locks it against a second pack on this machine, removes what
  /// killed writers left. Returns the number of units that were being made when they ended. Throws
  /// Error(usage) if the folder holds something else, or is locked.
  std::size_t prepare();

  /// Any number of ranks, each a share, after prepare and before pending: reads the shards that lie
  /// there, removes damaged ones. Throws Error(usage) for those of another pack.
  void check_shards(int rank, int size) const;

  /// True when the manifest lies there, with this identity: nothing is left to do.
  [[nodiscard]] bool finished() const;

  /// Units without a shard, ascending. Only names are looked at.
  [[nodiscard]] std::vector<std::size_t> pending() const;

  /// Notes that a unit is being made as long as the marker lives. An empty file: those that a kill
  /// leaves tell what work has to be done again.
  [[nodiscard]] UnitMarker mark(std::size_t unit) const;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::size_t clean_and_check() const;

  std::filesystem::path path_;
  std::string identity_;
  std::size_t num_units_;
  Fd lock_;
};

}  // namespace trireme
