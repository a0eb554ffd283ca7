#pragma once
#include <filesystem>

#include "core/files/file.hpp"

namespace trireme::data {

/// A copy of a token set on a local disk, shared by all processes of the node that read it. The
/// first process makes it and checks every byte, the others wait, and the last one deletes it.
/// After a kill, the next process that needs the same tokens checks and uses the copy, and a
/// process that needs another set deletes it.
///   place/trireme-staged/HASH        the copy, named by Manifest::content_xxh3
///   place/trireme-staged/HASH.part   the unfinished copy
///   place/trireme-staged/HASH.lock   flock: exclusive to make or delete, shared to read
class StagedSet {
 public:
  /// `place`: a directory on a local disk; created if needed. Throws Error(data) if the set is
  /// damaged, Error(resource) if the disk has no space for it, Error(usage) if `place` is not
  /// writable, StoppedEarly. Leaves no unfinished copy.
  StagedSet(const std::filesystem::path& set, const std::filesystem::path& place);
  StagedSet(const StagedSet&) = delete;
  StagedSet& operator=(const StagedSet&) = delete;
  ~StagedSet();

  [[nodiscard]] const std::filesystem::path& folder() const { return directory_; }

  /// Returns true if this process made the copy.
  [[nodiscard]] bool made() const { return made_; }

 private:
  bool take_lock(int kind);

  std::filesystem::path directory_;
  Fd lock_;
  bool made_ = false;
};

}  // namespace trireme::data
