#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/token_set.hpp"

namespace trireme {

/// The output folder of a pack: which shards are done, and nobody else's files. The folder itself
/// is the journal: a unit is done exactly when its shard lies there under its final name, whole,
/// with this pack's identity.
class PackFolder {
 public:
  /// `identity` stands for everything that decides the bytes. Call prepare before anything else.
  PackFolder(std::filesystem::path path, std::string identity, std::size_t num_units)
      : path_(std::move(path)), identity_(std::move(identity)), num_units_(num_units) {}

  /// One rank only: makes the folder, locks it against a second pack on this machine, removes what
  /// killed writers left. Throws Error(usage) if it holds something else or another pack's shards,
  /// or is locked.
  void prepare();

  /// True when the manifest lies there, with this identity: nothing is left to do.
  [[nodiscard]] bool finished() const;

  /// Units without a shard, ascending. Only names are looked at: prepare has checked what lies
  /// there.
  [[nodiscard]] std::vector<std::size_t> pending() const;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void clean_and_check() const;
  void check_shards() const;

  std::filesystem::path path_;
  std::string identity_;
  std::size_t num_units_;
  Fd lock_;
};

}  // namespace trireme
