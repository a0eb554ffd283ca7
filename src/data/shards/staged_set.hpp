#pragma once
#include <filesystem>

#include "core/files/file.hpp"

namespace trireme::data {

/// A copy of a token set on a local disk. All processes of the node that read the set share this
/// copy. The first process makes the copy and checks every byte. The other processes wait. The last
/// process deletes the copy. If the processes are killed, the copy stays. Then the next process
/// that needs the same tokens checks and uses the copy, or a process that needs another set deletes
/// the copy.
///   place/trireme-staged/HASH        the copy, named by Manifest::content_xxh3
///   place/trireme-staged/HASH.part   the unfinished copy
///   place/trireme-staged/HASH.lock   flock: exclusive to make or delete, shared to read
class StagedSet {
 public:
  /// `place`: a directory on a local disk; created if needed. Throws Error(data) if the set is
  /// damaged, Error(resource) if the disk has no space for it, Error(usage) if `place` is not
  /// writable. Throws StoppedEarly after a stop signal. Leaves no unfinished copy.
  StagedSet(const std::filesystem::path& set, const std::filesystem::path& place);
  StagedSet(const StagedSet&) = delete;
  StagedSet& operator=(const StagedSet&) = delete;
  ~StagedSet();

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

  /// Returns true if this process made the copy.
  [[nodiscard]] bool made() const { return made_; }

 private:
  bool take_lock(int kind);

  std::filesystem::path directory_;
  Fd lock_;
  bool made_ = false;
};

}  // namespace trireme::data
